"""The text about what a plan makes better and worse, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Smaller differences are invisible in the table above the sentence.
_SAME: Final = 0.00005
#: The goal of each kind of plan in words, as its potential means nothing to a reader.
_AIM: Final[Mapping[str, tuple[str, str]]] = {
    "balance": ("the load of hosts is nearer to the pool's", "the load of hosts is further off"),
    "pack": ("VMs are on fewer, fuller hosts", "VMs are on more, emptier hosts"),
}


def _format_number(value: float, places: int) -> str:
    """Return a number of a plan's effects with ``places`` decimals, or one digit if it is tiny."""
    text = f"{value:.{places}f}"
    return text if float(text) or not value else f"{value:.1g}"


def effect_text(
    kind: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> str | None:
    """Return text on the effects of a plan, or None if it is undecided or has no gain."""
    if kind not in _AIM or not before or not after:
        return None
    better: list[str] = []
    worse: list[str] = []

    def add_effect(difference: float, up: str, down: str) -> None:
        if abs(difference) >= _SAME:
            (better if difference > 0 else worse).append(up if difference > 0 else down)

    def difference(measure: str) -> float:
        first, last = before.get(measure), after.get(measure)
        return 0.0 if first is None or last is None else float(last) - float(first)

    def range_text(measure: str, form: Any) -> str:
        return f"({form(before[measure])} to {form(after[measure])})" if difference(measure) else ""

    add_effect(difference("potential"), *_AIM[kind])
    skewness = range_text("mean_skewness", lambda value: _format_number(value, 4))
    add_effect(
        -difference("mean_skewness"),
        f"hosts use their resources more evenly {skewness}",
        f"hosts use their resources less evenly {skewness}",
    )
    hosts = int(difference("hosts_in_use"))
    several = "host is" if abs(hosts) == 1 else "hosts are"
    add_effect(-hosts, f"{abs(hosts)} {several} free", f"{abs(hosts)} more {several} in use")
    off_fair = range_text("fairness_distance", lambda value: f"{_format_number(100 * value, 2)}%")
    add_effect(
        -difference("fairness_distance"),
        f"shares are nearer to fair {off_fair}",
        f"shares are further from fair {off_fair}",
    )
    carried = _format_number(difference("moved_gib"), 1)
    return (
        f"Better: {', '.join(better) or 'nothing'}. Worse: {', '.join(worse) or 'nothing'}."
        f" Cost: {carried} GiB to move."
    )
