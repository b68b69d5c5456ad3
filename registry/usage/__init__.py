"""Usage: what assignments held over time, by tenant, group, type or label, and what it costs."""

from registry.records.usage import (
    ClosedEntry,
    Currency,
    EntrySignature,
    Price,
    PriceList,
    Usage,
    UsageItem,
)

__all__ = ["ClosedEntry", "Currency", "EntrySignature", "Price", "PriceList", "Usage", "UsageItem"]
