"""The VMs that one host may take: combinations, searched, tabled and read."""
