"""Plan the runs of a study: policies, seeds and swept parameters."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from placement import PlacementError, entry_by_name, policy_by_name
from plain_text import RepeatedNameError, dict_of_unique_names
from simulation.errors import InputError
from simulation.experiments.specs import RunSpec

#: What a sweep may vary in addition to parameters of policies.
_SLOT: Final = "slot"
#: Ends of the names of variants with and without what is added, left out and moved.
UNCHANGED, CHANGED = "-unchanged", "-changed"
_MAX_RUNS: Final = 10_000


def plan_study(
    base: RunSpec,
    *,
    policies: Sequence[str],
    seeds: int,
    parameters: Sequence[str] = (),
    sweep: Sequence[str] = (),
    compare_unchanged: bool = False,
) -> list[RunSpec]:
    """Return the specs of all runs of a study, in order of policy, then seed.

    Parameters
    ----------
    parameters : sequence of str
        ``NAME=VALUE``, for every policy that reads them.
    sweep : sequence of str
        ``NAME=A,B,C``; a policy that does not read a parameter runs once for all
        its values.

    Raises
    ------
    InputError
        For words of the wrong form, unknown policies, or values that a policy refuses.
    """
    fixed, varied = (
        _parse_assignments(parameters, "--parameter"),
        _parse_assignments(sweep, "--sweep"),
    )
    if both := fixed.keys() & varied.keys():
        raise InputError("--sweep", f"{min(both)!r} is also given by --parameter")
    values = {name: text.split(",") for name, text in varied.items()}
    specs: list[RunSpec] = []
    inventories = [(base, "")]
    if compare_unchanged:
        if not (base.add_hosts or base.without_hosts or base.moving.is_enabled):
            raise InputError(
                "--compare-unchanged",
                "neither --add-hosts nor --without-hosts is given, nor --balance, --spare, --roll"
                " or --room",
            )
        as_is = replace(base, add_hosts=(), without_hosts=(), moving=base.moving.without_moves())
        inventories = [(as_is, UNCHANGED), (base, CHANGED)]
    for policy in policies:
        read = _parameter_names(policy)
        axes = [name for name in values if name == _SLOT or name in read]
        for chosen in itertools.product(*(values[name] for name in axes)):
            point = dict(zip(axes, chosen, strict=True))
            label = "".join(f"-{name}{text}" for name, text in point.items())
            for hosts, which in inventories:
                specs += _runs_of_variant(hosts, policy, {**fixed, **point}, label + which, seeds)
    unread = [
        name
        for name in values
        if name != _SLOT and not any(name in _parameter_names(policy) for policy in policies)
    ]
    if unread:
        raise InputError(f"--sweep {unread[0]}", "no policy that runs reads this parameter")
    twice = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
    if twice:
        raise InputError(twice[0], "the name of two runs; a policy or a value is given twice")
    if len(specs) > _MAX_RUNS:
        raise InputError("--sweep", f"{len(specs)} runs, allowed are {_MAX_RUNS}")
    return specs


def _runs_of_variant(
    base: RunSpec, policy: str, values: Mapping[str, str], label: str, seeds: int
) -> list[RunSpec]:
    """Return the specs of one variant of a study, one for each seed."""
    parameters = {name: _parse_value(text) for name, text in values.items() if name != _SLOT}
    length_s = base.slot_length_s
    if _SLOT in values:
        length_s = parse_slot_length(values[_SLOT], "--sweep slot")
    for option, name, its in (
        (f"--policy {policy}", policy, parameters),
        *(
            (f"--zone-policy {zone}={name}", name, base.zone_parameters.get(zone, parameters))
            for zone, name in base.zone_policies.items()
        ),
    ):
        try:
            policy_by_name(name, its)
        except PlacementError as error:
            raise InputError(option, str(error)) from error
    return [
        replace(
            base,
            name=f"{policy}{label}-seed{seed}".replace("/", "_"),
            policy=policy,
            parameters=parameters,
            slot_length_s=length_s,
            seed=seed,
        )
        for seed in range(seeds)
    ]


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """The policy that a study uses on the hosts of a zone."""

    policy: str
    parameters: Mapping[str, Any] | None = None  #: None: those of the policy elsewhere


def read_zone_policies(words: Sequence[str]) -> Mapping[str, ZoneChoice]:
    """Read the policies of zones from the options of a study.

    Words are ``ZONE=POLICY``, or name a JSON file as ``FUGA_ZONE_POLICIES`` has it:
    ``{"ZONE": {"policy": …, "parameters": {…}}}``.

    Raises
    ------
    InputError
        For other words and files, and zones that are named twice.
    """
    choices: list[tuple[str, ZoneChoice]] = []
    for word in words:
        if "=" in word and not Path(word).is_file():
            zone, policy = _parse_assignment(word, "--zone-policy")
            choices.append((zone, ZoneChoice(policy)))
        else:
            choices += _zones_in(word)
    if len({zone for zone, _ in choices}) < len(choices):
        raise InputError("--zone-policy", "a zone is named twice")
    return dict(choices)


def _zones_in(path: str) -> list[tuple[str, ZoneChoice]]:
    """Read the policies of zones from a JSON file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(text, object_pairs_hook=dict_of_unique_names)
        return [
            (zone, ZoneChoice(str(its["policy"]), dict(its.get("parameters", {}))))
            for zone, its in document.items()
        ]
    except RepeatedNameError as error:
        raise InputError(f"--zone-policy {path}", str(error)) from error
    except OSError as error:
        wanted = "ZONE=POLICY, or a JSON file"
        raise InputError(f"--zone-policy {path}", f"{error.strerror}; expected {wanted}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        form = '{"ZONE": {"policy": "NAME", "parameters": {}}}'
        raise InputError(f"--zone-policy {path}", f"expected {form}: {error!r}") from error


def parse_slot_length(text: str, where: str) -> float:
    """Read the length of a slot, in seconds, from an option of a study."""
    try:
        length_s = float(text)
    except ValueError:
        raise InputError(where, f"found {text!r}, expected seconds") from None
    if not 0.001 <= length_s <= 1e9:
        raise InputError(where, f"found {text!r}, expected 0.001 s or more")
    return length_s


def _parameter_names(policy: str) -> frozenset[str]:
    """Return the names of the parameters that a policy reads."""
    try:
        return entry_by_name(policy).parameters
    except PlacementError as error:
        raise InputError(f"--policy {policy}", str(error)) from error


def _parse_assignments(words: Iterable[str], where: str) -> dict[str, str]:
    """Parse options of the form ``NAME=VALUE``; no name may stand twice."""
    try:
        return dict_of_unique_names(_parse_assignment(word, where) for word in words)
    except RepeatedNameError as error:
        raise InputError(where, str(error)) from None


def _parse_assignment(word: str, where: str) -> tuple[str, str]:
    """Parse one option of the form ``NAME=VALUE``."""
    name, equals, value = word.partition("=")
    if not name or not equals or not value:
        raise InputError(f"{where} {word}", "expected NAME=VALUE")
    return name, value


def _parse_value(text: str) -> Any:
    """Return the JSON value of an option's text, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
