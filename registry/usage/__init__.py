"""Usage: what assignments held over time, by tenant, group, type or label, and what it costs."""

from registry.records.budgets import Budget, BudgetState, BudgetUse
from registry.records.usage import (
    ClosedEntry,
    Currency,
    EntrySignature,
    Price,
    PriceList,
    Usage,
    UsageItem,
)

__all__ = [
    "Budget",
    "BudgetState",
    "BudgetUse",
    "ClosedEntry",
    "Currency",
    "EntrySignature",
    "Price",
    "PriceList",
    "Usage",
    "UsageItem",
]
