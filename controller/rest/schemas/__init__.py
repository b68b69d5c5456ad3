"""What calls of the API send and get, as OpenAPI tells it."""
