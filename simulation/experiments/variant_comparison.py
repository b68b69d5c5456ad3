"""Compare policies, with significance tests over seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement import FloatArray
from simulation.experiments.study_plan import CHANGED, UNCHANGED
from simulation.metrics.confidence import half_width
from simulation.metrics.summary import measure_at, measures_of

#: Maximum number of differences whose signs are all tried; of more, signs are drawn at random.
_MAX_EXACT: Final = 12
_TRIES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """The difference of a measure between a study's variant and its base, paired by seed."""

    mean: float
    half_width: float  #: of the 95 % confidence interval of the mean; 0 for one seed
    p: float | None  #: None: fewer than two seeds
    seeds: int

    @property
    def is_significant(self) -> bool:
        """Whether the difference between two variants is significant at the 5 % level."""
        return self.p is not None and self.p <= 0.05


def variant_of(summary: Mapping[str, Any]) -> str:
    """Return the variant of a study's run: its name without the seed."""
    return str(summary["name"]).rpartition("-seed")[0] or str(summary["name"])


def compare_variants(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means of a study's variants, and their differences from a base, as JSON values.

    That is the first variant; for one that is changed the same unchanged.

    Notes
    -----
    Differences are paired by seed; ``p`` is of the sign-flip test: how many of
    all choices of signs make a sum of differences at least as large.
    """
    variants: dict[str, dict[int, Mapping[str, Any]]] = {}
    for summary in summaries:
        variants.setdefault(variant_of(summary), {})[int(summary["seed"])] = summary
    first = next(iter(variants), None)
    measures = measures_of(summaries)
    rows = []
    for name, by_seed in variants.items():
        base = unchanged_variant(name)
        if base not in variants:
            base = first if name != first else None
        row: dict[str, Any] = {
            "variant": name,
            "base": base,
            "seeds": sorted(by_seed),
            "measures": {},
        }
        row["policy"] = next(iter(by_seed.values()))["policy"]
        for path, *_ in measures:
            values = [measure_at(by_seed[seed], path) for seed in sorted(by_seed)]
            known = [value for value in values if value is not None]
            document: dict[str, Any] = {
                "mean": float(np.mean(known)) if known else None,
                "sd": float(np.std(known, ddof=1)) if len(known) > 1 else None,
            }
            if base is not None:
                document["difference"] = _difference_document(
                    paired_difference(variants[base], by_seed, path)
                )
            row["measures"][path] = document
        rows.append(row)
    return {"base": first, "variants": rows}


def unchanged_variant(variant: str) -> str | None:
    """Return the name of the variant with the same policy on unchanged hosts, or None."""
    stem = variant.removesuffix(CHANGED)
    return stem + UNCHANGED if stem != variant else None


def paired_difference(
    base: Mapping[int, Mapping[str, Any]], other: Mapping[int, Mapping[str, Any]], path: str
) -> PairedDifference | None:
    """Return the difference of a measure between two variants of a study, paired by seed."""
    pairs = [
        (measure_at(base[seed], path), measure_at(other[seed], path))
        for seed in base
        if seed in other
    ]
    gaps = np.array([b - a for a, b in pairs if a is not None and b is not None])
    if not len(gaps):
        return None
    p = sign_flip_p(gaps) if len(gaps) > 1 else None
    return PairedDifference(
        mean=float(gaps.mean()), half_width=half_width(gaps.tolist()), p=p, seeds=len(gaps)
    )


def sign_flip_p(gaps: FloatArray) -> float:
    """Return the p-value of a sign-flip test: how likely the sum of gaps is by chance.

    Examples
    --------
    Three differences of one sign: two of the eight choices are as extreme.

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0]))
    0.25
    """
    found = abs(float(gaps.sum()))
    if len(gaps) <= _MAX_EXACT:
        signs = np.array(list(itertools.product((1, -1), repeat=len(gaps))))
    else:
        signs = np.random.default_rng(0).choice((1, -1), (_TRIES, len(gaps)))
    sums = np.abs(signs @ gaps)
    return float((sums >= found - 1e-12 * max(1.0, math.fabs(found))).mean())


def _difference_document(found: PairedDifference | None) -> dict[str, Any] | None:
    """Return a difference between variants as JSON values."""
    if found is None:
        return None
    return {
        "mean": found.mean,
        "half_width": found.half_width,
        "p": found.p,
        "seeds": found.seeds,
        "significant": found.is_significant,
    }
