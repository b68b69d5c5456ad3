"""Requests of tenants, their VMs and VM groups, and their placement rules."""

from registry.records.requests import (
    Counts,
    GuestAccess,
    ImageWait,
    MembershipRule,
    NewVolume,
    Power,
    Request,
    Rules,
    UserData,
    Vm,
    VmGroup,
    WaitingStatus,
)
from registry.requests.batch import can_batch
from registry.requests.request_spec import (
    MAX_PRIORITY,
    CreateRequestCommand,
    RequestSpec,
    check_spec,
)
from registry.requests.rules import NO_RULES, ZONE_LABEL, check_rules, rules_allow, zone_of

__all__ = [
    "MAX_PRIORITY",
    "NO_RULES",
    "ZONE_LABEL",
    "Counts",
    "CreateRequestCommand",
    "GuestAccess",
    "ImageWait",
    "MembershipRule",
    "NewVolume",
    "Power",
    "Request",
    "RequestSpec",
    "Rules",
    "UserData",
    "Vm",
    "VmGroup",
    "WaitingStatus",
    "can_batch",
    "check_rules",
    "check_spec",
    "rules_allow",
    "zone_of",
]
