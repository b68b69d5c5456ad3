"""What `fuga up` tells while it runs."""

from __future__ import annotations

from controller.client.connection import ApiConnection
from controller.client.http import Client
from controller.embedded.status_lines import StatusLines
from tests.fakes.http_api import http_api


def test_an_api_that_does_not_answer_is_no_news_and_no_end() -> None:
    nobody = Client(
        ApiConnection(url="http://127.0.0.1:9", token="x"), timeout_s=5, retry_after_s=()
    )
    said: list[str] = []

    StatusLines(nobody, said.append).print_changes()

    assert said == []


def test_a_host_that_is_not_yet_up_is_starting_as_in_lists() -> None:
    said: list[str] = []
    with http_api() as api:
        api.on("GET", "/v1/rounds", {"items": [], "next": None})
        api.on_list("/v1/vms")
        hosts = [
            {"name": "h1", "health": health, "last_error": None, "returning_since": since}
            for health, since in (("up", None), ("enrolling", None), ("up", "2026-01-01T00:00:00Z"))
        ]
        api.on("GET", "/v1/hosts", *[{"items": [host], "next": None} for host in hosts])
        lines = StatusLines(Client(ApiConnection(url=api.url, token="x")), said.append)

        for _ in hosts:
            lines.print_changes()

    assert said == ["host h1 is starting"]
