"""Who calls the API of a site that is struck: tenants, their volumes, and operators."""
