"""Usage: what assignments held over time, by tenant, group, type or label, and what it costs."""

from registry.records.usage import Currency, Price, PriceList, Usage, UsageItem

__all__ = ["Currency", "Price", "PriceList", "Usage", "UsageItem"]
