"""Nothing in here is collected without `make distribution`: its guests boot for minutes."""

from __future__ import annotations

import os

from tests.servers.lab_hosts import lab_cluster

__all__ = ["lab_cluster"]

collect_ignore_glob = [] if "FUGA_TEST_DISTRIBUTION" in os.environ else ["test_*.py"]
