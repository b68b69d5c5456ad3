"""Suites that look at a whole running fuga share one lab of real hosts."""

from tests.servers.lab_hosts import driver_hosts, lab_cluster

__all__ = ["driver_hosts", "lab_cluster"]
