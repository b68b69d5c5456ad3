"""What every error answer of the API has to look like."""

from __future__ import annotations

from typing import Any

import httpx


def the_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Return the problem document, once it is one and says what is expected."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert "Traceback" not in answer.text
    return document


def places(problem: dict[str, Any]) -> list[str]:
    """Return where the input is faulty: JSON pointers, and names of parameters."""
    return [error.get("pointer") or error["parameter"] for error in problem["errors"]]
