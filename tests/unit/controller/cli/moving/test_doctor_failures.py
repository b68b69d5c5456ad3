"""What the doctor says of hosts whose label for failures has no effect."""

from __future__ import annotations

from typing import Any

from controller.cli.doctor.hosts import failure_findings
from registry.hosts import FailurePolicy


def a_host(name: str, *labels: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "admin": "active", "labels": list(labels)} | fields


def found(*hosts: dict[str, Any], by_default: str = "wait") -> list[str]:
    return [each.message for each in failure_findings(hosts, FailurePolicy(by_default))]


def test_a_host_that_replaces_nothing_is_named() -> None:
    local = a_host("h1", "on_failure=replace")
    shared = a_host("h2", "on_failure=replace", "shared_pool=nfs")

    [problem] = found(local, shared, a_host("h3"))

    assert problem.startswith("on_failure=replace moves nothing from h1: without a shared pool")
    assert found(shared, a_host("h3")) == []
    assert found(a_host("h1", "on_failure=replace", admin="retired")) == []


def test_the_setting_of_the_site_counts_as_a_label_does() -> None:
    assert len(found(a_host("h1"), by_default="replace")) == 1
    assert found(a_host("h1"), by_default="rebuild") == []
    assert found(a_host("h1", "on_failure=rebuild"), by_default="replace") == []


def test_of_many_hosts_some_are_named() -> None:
    [problem] = found(*(a_host(f"h{number}") for number in range(1, 9)), by_default="replace")

    assert "h1, h2, h3, h4, h5 and 3 more:" in problem
