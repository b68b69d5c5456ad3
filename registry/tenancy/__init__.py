"""Between whom the cluster is shared: the tree of tenants, quotas, tokens and SSH keys."""
