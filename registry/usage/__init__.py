"""Usage: what assignments held over time, by tenant, group, type or label."""

from registry.records.usage import Usage, UsageItem

__all__ = ["Usage", "UsageItem"]
