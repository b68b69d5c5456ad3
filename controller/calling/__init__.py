"""What commands that ask the API share: address, token, names, waiting and watching."""
