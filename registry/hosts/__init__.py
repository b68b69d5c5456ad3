"""Hosts: how they are reached, their reports, and their differences from the ledger."""

from registry.hosts.credentials import CredentialFiles, HostCredentials
from registry.hosts.identities import HostIdentity
from registry.hosts.uris import (
    DEFAULT_URI_POLICY,
    OPEN_DANGER,
    HostAccessMethod,
    UriPolicy,
    access_method_of,
    check_uri,
    is_unprotected,
)
from registry.hosts.validation import Keep
from registry.ledger.failure_policy import (
    FailurePolicy,
    failure_outlook,
    failure_policy_of,
    is_replaced,
)
from registry.ledger.shared_disks import shared_pool_of
from registry.records.hosts import (
    DomainReport,
    Fence,
    FenceOrder,
    Host,
    HostAccess,
    HostMap,
    HostReport,
    HostsRead,
    Inventory,
    MappedResource,
    Miss,
    MissPolicy,
    MonitorRecord,
    NewHost,
    WatchedHost,
)

__all__ = [
    "DEFAULT_URI_POLICY",
    "OPEN_DANGER",
    "CredentialFiles",
    "DomainReport",
    "FailurePolicy",
    "Fence",
    "FenceOrder",
    "Host",
    "HostAccess",
    "HostAccessMethod",
    "HostCredentials",
    "HostIdentity",
    "HostMap",
    "HostReport",
    "HostsRead",
    "Inventory",
    "Keep",
    "MappedResource",
    "Miss",
    "MissPolicy",
    "MonitorRecord",
    "NewHost",
    "UriPolicy",
    "WatchedHost",
    "access_method_of",
    "check_uri",
    "failure_outlook",
    "failure_policy_of",
    "is_replaced",
    "is_unprotected",
    "shared_pool_of",
]
