"""VMs that are gone, as people look for them: by name, in lists, events, explanations and audit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi, RecordedCall
from tests.unit.controller.cli.api_documents import Fuga, a_vm

FIRST, SECOND, LIVE = (f"0193a111-0000-7000-8000-00000000000{n}" for n in (1, 2, 3))
GONE = {"desired": "deleted", "host": None}


def site(api: HttpApi, *vms: dict[str, Any]) -> None:
    """An API with these VMs, of which it shows those that are there unless it is told otherwise."""

    def answer(requested: RecordedCall) -> Answer:
        everything = requested.query.get("include_deleted") == "true"
        name = requested.query.get("name")
        found = [
            vm
            for vm in vms
            if (everything or vm["deleted_at"] is None) and name in {None, vm["name"]}
        ]
        return 200, {"items": found, "next": None}

    api.routes["GET", "/v1/vms"] = answer
    api.on_list("/v1/requests")
    api.on("GET", "/v1/events", {"items": [], "next": 0})
    api.on_list("/v1/audit")
    for vm in vms:
        explanation = {"name": vm["name"], "host": None, "message": "it is gone"}
        api.on("GET", f"/v1/vms/{vm['id']}/explanation", explanation)


def first() -> dict[str, Any]:
    return a_vm(id=FIRST, name="web-2", deleted_at="2026-01-02T00:00:00Z", **GONE)


def second() -> dict[str, Any]:
    return a_vm(id=SECOND, name="web-2", deleted_at="2026-02-02T00:00:00Z", **GONE)


def live() -> dict[str, Any]:
    return a_vm(id=LIVE, name="web-2")


@pytest.mark.parametrize(
    ("vms", "meant", "others"),
    [
        ([live()], LIVE, []),
        ([first()], FIRST, []),
        ([first(), second()], SECOND, [FIRST]),
        ([first(), second(), live()], LIVE, [SECOND, FIRST]),
    ],
    ids=["one that is there", "one that is gone", "two that are gone", "one there, two gone"],
)
@pytest.mark.parametrize(
    "words",
    [["events", "--subject", "web-2"], ["audit", "--subject", "web-2"], ["explain", "web-2"]],
)
def test_a_name_means_the_vm_that_is_there_or_the_newest_and_names_the_others(
    api: HttpApi,
    fuga: Fuga,
    words: list[str],
    vms: list[dict[str, Any]],
    meant: str,
    others: list[str],
) -> None:
    site(api, *vms)

    ended = fuga(*words)

    assert ended.status == 0, ended.err
    if words[0] == "explain":
        assert api.calls("GET", f"/v1/vms/{meant}/explanation")
    else:
        [call] = api.calls("GET", f"/v1/{words[0]}")
        assert call.query["subject"] == meant
    listed = [each.split()[0] for each in ended.err.splitlines() if each.startswith("  ")]
    assert listed == others


def test_a_name_that_never_was_is_refused_by_events_and_is_a_subject_of_the_audit(
    api: HttpApi, fuga: Fuga
) -> None:
    site(api, live())

    events, audit = fuga("events", "--subject", "db-1"), fuga("audit", "--subject", "db-1")

    assert (events.status, audit.status) == (2, 0)
    assert "fuga vms --deleted" in events.err
    assert api.calls("GET", "/v1/audit")[0].query["subject"] == "db-1"


def test_vms_that_are_gone_are_listed_with_their_ids_and_times(api: HttpApi, fuga: Fuga) -> None:
    api.on_list("/v1/vms", second())

    ended = fuga("vms", "--deleted", "--since", "2026-02-01T00:00:00Z")

    [call] = api.calls("GET", "/v1/vms")
    assert call.query["deleted_since"] == "2026-02-01T00:00:00+00:00"
    assert SECOND in ended.out
    assert "2026-02-0" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--since", "7d"], "--since needs --deleted"), (["--deleted", "--all"], "only one of")],
)
def test_options_that_do_not_go_together_are_refused(
    fuga: Fuga, words: list[str], said: str
) -> None:
    ended = fuga("vms", *words)

    assert (ended.status, said in ended.err) == (2, True)
