"""What `fuga up` tells while it runs."""

from __future__ import annotations

from controller.client.connection import ApiConnection
from controller.client.http import Client
from controller.embedded.status_lines import StatusLines


def test_an_api_that_does_not_answer_is_no_news_and_no_end() -> None:
    nobody = Client(
        ApiConnection(url="http://127.0.0.1:9", token="x"), timeout_s=5, retry_after_s=()
    )
    said: list[str] = []

    StatusLines(nobody, said.append).print_changes()

    assert said == []
