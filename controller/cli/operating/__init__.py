"""Commands that run the site, watch it and find faults."""
