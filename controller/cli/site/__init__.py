"""Commands for hosts, resources, types, images, networks, tenants, quotas and tokens."""
