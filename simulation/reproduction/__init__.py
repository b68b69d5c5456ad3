"""Reproduce tables and figures of the papers, and compare them with the printed ones."""

from simulation.reproduction.catalog import EVERYTHING, ITEMS, items_named
from simulation.reproduction.item_runner import (
    DOCUMENT,
    FinishedItem,
    run_item,
    run_items,
    verdicts_document,
)
from simulation.reproduction.model import Item, ItemOutcome, Setup, Verdict

__all__ = [
    "DOCUMENT",
    "EVERYTHING",
    "ITEMS",
    "FinishedItem",
    "Item",
    "ItemOutcome",
    "Setup",
    "Verdict",
    "items_named",
    "run_item",
    "run_items",
    "verdicts_document",
]
