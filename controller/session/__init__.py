"""Parts of commands that call the API: address, token, names, waiting and watching."""
