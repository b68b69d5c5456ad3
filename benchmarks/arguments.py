"""What benchmarks of growing sizes are told: which sizes, and how long each is measured."""

from __future__ import annotations

import argparse


def growing(
    document: str | None, option: str, default: str, *, seconds: float, counted: str = ""
) -> argparse.ArgumentParser:
    """Return a parser whose options are the sizes, one after the other, and ``--seconds``."""
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told = " ".join(filter(None, ("how many", counted)))
    parser.add_argument(option, type=numbers, default=default, help=f"{told}, commas between")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    return parser


def numbers(text: str) -> list[int]:
    """Read ``100,2000``."""
    return [int(each) for each in text.split(",")]
