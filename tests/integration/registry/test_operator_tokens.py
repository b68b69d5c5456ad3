"""Operators' tokens end: who is told, when, and what follows them."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from controller.cli.doctor.check_result import CheckResult
from controller.cli.doctor.register import register_findings
from controller.fleet_metrics import FleetCollector
from controller.settings import ControllerSettings
from registry import Registry
from tests.raw_sql import RawSql, raw_sql
from tests.register import ACTOR, add_tenant

DAY_S = 86_400


def told(url: str, folder: Path) -> list[CheckResult]:
    settings = ControllerSettings(database_url=url, state_dir=folder)
    found = register_findings(settings, hashes=False, repair=False)
    return [each for each in found if each.about == "tokens"]


def pass_days(raw: RawSql, name: str, days: int) -> None:
    ends, made = raw.before("expires_at", f"{days} days"), raw.before("created_at", f"{days} days")
    raw.run(f"UPDATE tokens SET expires_at = {ends}, created_at = {made} WHERE name = '{name}'")


def test_doctor_names_operators_tokens_that_end_soon_and_those_that_never_do(
    register: Registry, register_url: str, tmp_path: Path
) -> None:
    for name, ttl_s in (
        ("old", None), ("alice", 90 * DAY_S), ("job", 3600), ("fuga-up-20261122-130000", None),
    ):  # fmt: skip
        register.tokens.create("operator", None, name, actor=ACTOR, ttl_s=ttl_s)
    add_tenant(register, "a")
    register.tokens.create("tenant", "a", "laptop", actor=ACTOR)

    before = told(register_url, tmp_path)
    with raw_sql(register_url) as raw:
        pass_days(raw, "alice", 80)
    after = told(register_url, tmp_path)

    endless = CheckResult("tokens", True, "operators' tokens that never expire: old", note=True)
    assert before == [endless]
    assert after == [
        CheckResult("tokens", False, "expire soon: alice; renew with `fuga token renew NAME`"),
        endless,
    ]


def test_metrics_tell_when_the_first_token_ends_that_is_in_use(
    register: Registry, register_url: str
) -> None:
    register.tokens.create("operator", None, "unused", actor=ACTOR, ttl_s=DAY_S)
    _, secret = register.tokens.create("operator", None, "scraper", actor=ACTOR, ttl_s=5 * DAY_S)
    _, other = register.tokens.create("operator", None, "alice", actor=ACTOR, ttl_s=9 * DAY_S)

    silent = metric(register)
    for each in (secret, other):
        assert register.tokens.authenticate(each) is not None

    assert silent is None
    assert 4 * DAY_S < (metric(register) or 0) <= 5 * DAY_S


def metric(register: Registry) -> float | None:
    metrics = CollectorRegistry()
    metrics.register(FleetCollector(register, interval_s=1e-9, max_series=10))
    for line in generate_latest(metrics).decode().splitlines():
        if line.startswith("fuga_operator_token_ends_seconds "):
            return float(line.split()[1])
    return None
