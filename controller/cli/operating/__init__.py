"""Commands that run the site, watch it, and find what is wrong."""
