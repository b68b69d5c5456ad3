"""The schemas of the API's calls and answers, as OpenAPI shows them."""
