"""Every reproduced table and figure, by name, in the order of papers and of their pages."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from simulation.errors import InputError
from simulation.reproduction import (
    drfh_completion,
    drfh_examples,
    drfh_over_time,
    drfh_use,
    fuga_cluster,
    fuga_example,
    fuga_scale,
    mch_over_time,
    mch_times,
    psdsf_examples,
    psdsf_over_time,
)
from simulation.reproduction.model import Item, Items

EVERYTHING: Final = "all"

ITEMS: Final[Items] = MappingProxyType(
    {
        item.name: item
        for module in (
            fuga_example,
            fuga_cluster,
            fuga_scale,
            drfh_examples,
            drfh_over_time,
            drfh_use,
            drfh_completion,
            psdsf_examples,
            psdsf_over_time,
            mch_over_time,
            mch_times,
        )
        for item in module.ITEMS
    }
)


def items_named(names: Sequence[str]) -> list[Item]:
    """Return reproduced tables and figures by name, in the order of the catalogue.

    ``all`` names every one.

    Raises
    ------
    InputError
        For a name that nothing has, with those that are near.
    """
    for name in names:
        if name != EVERYTHING and name not in ITEMS:
            near = difflib.get_close_matches(name[:64], ITEMS, n=3)
            perhaps = f"; near are {', '.join(near)}" if near else ""
            raise InputError(name, f"no table or figure of that name{perhaps} (--list has all)")
    wanted = set(ITEMS) if EVERYTHING in names else set(names)
    return [item for name, item in ITEMS.items() if name in wanted]
