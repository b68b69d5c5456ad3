"""Commands for what there is: hosts, types, images, networks, tenants and their tokens."""
