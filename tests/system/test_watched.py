"""A running fuga, watched: its metrics against rules and dashboard, one request in all logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.servers.running import RunningFuga, eventually, running_fuga

DEPLOY = Path(__file__).parents[2] / "deploy"
PROCESSES = ("api", "control", "monitor", "worker")
METRIC = re.compile(r"\bfuga_[a-z0-9_]+")
PARTS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}

pytestmark = [pytest.mark.test_driver, pytest.mark.sqlite, pytest.mark.slow]


@pytest.fixture(scope="module")
def fuga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFuga]:
    """One whose processes listen on sockets in its state folder."""
    state_dir = tmp_path_factory.mktemp("w") / "s"
    with running_fuga(
        state_dir,
        "--driver",
        "test",
        FUGA_METRICS_LISTEN=f"unix:{state_dir}/{{process}}.sock",
        FUGA_METRICS_INTERVAL_S="0.1",
    ) as fuga:
        yield fuga


def ask(fuga: RunningFuga, process: str, path: str) -> httpx.Response:
    transport = httpx.HTTPTransport(uds=str(fuga.state_dir / f"{process}.sock"))
    with httpx.Client(transport=transport, base_url="http://process", timeout=60) as client:
        return client.get(path)


def exported(fuga: RunningFuga) -> set[str]:
    return {
        family.name + part
        for process in PROCESSES
        for family in text_string_to_metric_families(ask(fuga, process, "/metrics").text)
        for part in PARTS.get(family.type, ("",))
    }


def expressions() -> list[str]:
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    dashboard = json.loads((DEPLOY / "grafana" / "fuga.json").read_text())
    return [
        *(rule["expr"] for group in alerts["groups"] for rule in group["rules"]),
        *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"]),
    ]


def test_every_process_is_ready(fuga: RunningFuga) -> None:
    for process in PROCESSES:
        eventually(lambda process=process: ask(fuga, process, "/readyz").status_code == 200)


def test_rules_and_dashboard_speak_of_metrics_that_there_are(fuga: RunningFuga) -> None:
    body = {name for each in expressions() for name in METRIC.findall(each)}

    assert len(body) > 20
    assert body - exported(fuga) == set()


def lines(fuga: RunningFuga, process: str) -> list[dict[str, Any]]:
    text = (fuga.state_dir / "logs" / f"{process}.log").read_text(errors="replace")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_one_request_is_followed_through_all_logs(fuga: RunningFuga) -> None:
    fuga.cli("request", "tiny", "-n", "2", "--tenant", "a", "--name", "seen", "--wait")
    [[key]] = fuga.sql("SELECT id FROM requests WHERE name = 'seen'")
    request_id = str(UUID(key))

    def about(process: str, event: str) -> list[dict[str, Any]]:
        found = [each for each in lines(fuga, process) if each.get("request_id") == request_id]
        return [each for each in found if each["event"] == event]

    def ended_well() -> list[dict[str, Any]]:
        return [each for each in about("worker", "build_ended") if each["outcome"] == "done"]

    # What is logged of a step comes after the step that `--wait` saw.
    eventually(lambda: len({each["vm_id"] for each in ended_well()}) == 2)
    eventually(lambda: sum(each["vms"] for each in about("control", "request_placed")) >= 2)
    [accepted] = eventually(lambda: about("api", "request_accepted"))
    placed, built = about("control", "request_placed"), ended_well()
    assert accepted["http_request_id"]
    assignments = {each for line in placed for each in line["assignments"]}
    assert {each["assignment_id"] for each in built} <= assignments
    assert {each["round"] for each in built} <= {each["round"] for each in placed}
    assert all(each["vm_id"] and each["host"] and each["task"] for each in built)
