"""Errors become problem documents, by one table."""

from __future__ import annotations

import json

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import registry.errors
from controller.errors import PolicyFailedError
from controller.rest.problems import errors as rest_errors
from controller.rest.problems.documents import KINDS, MEDIA_TYPE, build_problem, quotable_value  # type: ignore[attr-defined]
from registry import (
    DatabaseFullError,
    DuplicateError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidError,
    NotFoundError,
    RegistryUnavailableError,
    UriRefusedError,
)

#: Between control centre, workers and the register center; no call of the API meets them.
NEVER_MET = {
    "StaleEpochError",
    "LeaseLostError",
    "ClaimLostError",
    "SlotLoopPausedError",
    "PlanMoveOverError",  # the control centre alone asks for moves of plans
    "HostCredentialError",
    "AnotherMachineError",
    "SettingsError",
    "ForeignSchemaObjectsError",  # no process serves such a database
    "UnknownNameError",  # is an InvalidError
    "UnknownSettingError",
    "AnsweredBeforeError",  # is answered with what the first call was told
}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundError("vm", "v1"), 404, "not_found"),
        (DuplicateError("host", "name", "h1"), 409, "duplicate"),
        (InvalidError("count", 0, "1 to 10000"), 422, "invalid"),
        (UriRefusedError("test:///default", "scheme"), 422, "uri_refused"),
        (IdempotencyConflictError("k"), 422, "idempotency_key_reused"),
        (IdempotencyInProgressError("k"), 409, "idempotency_in_progress"),
        (rest_errors.UnauthorizedError("no token"), 401, "unauthorized"),
        (rest_errors.ForbiddenError("no", needed="operator", given="tenant a"), 403, "forbidden"),
        (rest_errors.RateLimitedError("often", 3), 429, "rate_limited"),
        (rest_errors.OverloadedError(400), 503, "overloaded"),
        (rest_errors.BodyTooLargeError(9), 413, "too_large"),
        (rest_errors.UnsupportedMediaTypeError(None), 415, "unsupported_media_type"),
        (rest_errors.MalformedBodyError("x"), 400, "malformed"),
        (RegistryUnavailableError("locked"), 503, "not_ready"),
        (DatabaseFullError("could not extend file"), 503, "database_full"),
        (PolicyFailedError("fuga", "overran"), 500, "policy_failed"),
        (HTTPException(404), 404, "no_such_path"),
        (HTTPException(405), 405, "method_not_allowed"),
        (HTTPException(418), 418, "im_a_teapot"),
    ],
)
def test_an_error_has_its_status_and_a_stable_code(error: Exception, status: int, code: str):
    document = build_problem(error, method="GET", path="/v1/vms").document()

    assert (document["status"], document["code"]) == (status, code)
    assert document["type"].endswith(code)
    assert document["title"]


def test_every_error_of_the_registry_that_a_caller_can_meet_has_a_kind():
    leaves = {
        name: cls
        for name, cls in vars(registry.errors).items()
        if isinstance(cls, type) and issubclass(cls, registry.errors.RegistryError)
    }
    missing = {name for name, cls in leaves.items() if KINDS.keys().isdisjoint(cls.__mro__)}

    assert missing - NEVER_MET - {"RegistryError"} == set()


def test_a_field_that_the_register_center_refuses_is_pointed_at_in_the_body():
    error = InvalidError("overrides.gpu", "gpu", "one of vcpus, memory_mib, disk_gib")

    document = build_problem(error, method="POST", path="/v1/hosts").document()

    assert document["errors"] == [
        {
            "in": "body",
            "pointer": "#/overrides/gpu",
            "detail": str(error),
            "found": "gpu",
            "allowed": "one of vcpus, memory_mib, disk_gib",
        }
    ]


def test_a_bad_cursor_is_a_parameter():
    error = InvalidError("cursor", "x", "a cursor of an earlier page of this list")

    document = build_problem(error, method="GET", path="/v1/hosts").document()

    assert document["errors"][0]["in"] == "query"
    assert document["errors"][0]["parameter"] == "cursor"


def test_validation_errors_say_what_was_found_and_what_is_allowed():
    error = RequestValidationError(
        [
            {
                "type": "greater_than_equal",
                "loc": ("body", "count"),
                "msg": "Input should be greater than or equal to 1",
                "input": -3,
            },
            {"type": "missing", "loc": ("body", "a/b~c"), "msg": "Field required", "input": {}},
            {
                "type": "extra_forbidden",
                "loc": ("query", "tennant"),
                "msg": "Extra inputs are not permitted",
                "input": "a",
            },
        ]
    )

    document = build_problem(error, method="POST", path="/v1/requests").document()

    count, missing, extra = document["errors"]
    assert count["pointer"] == "#/count"
    assert count["found"] == -3
    assert count["allowed"] == "greater than or equal to 1"
    assert missing["pointer"] == "#/a~1b~0c"
    assert missing["detail"] == "a/b~c: found nothing, allowed is a value (required)"
    assert extra["parameter"] == "tennant"
    assert "count: found -3" in document["detail"]


def test_a_body_wrong_in_hundreds_of_places_is_answered_briefly():
    error = RequestValidationError(
        [
            {"type": "x", "loc": ("body", str(n)), "msg": "Input should be less", "input": n}
            for n in range(500)
        ]
    )

    document = build_problem(error, method="POST", path="/v1/requests").document()

    assert len(document["errors"]) == 20
    assert document["detail"].endswith("and 497 more")


def test_an_unknown_error_tells_its_incident_and_nothing_of_itself():
    problem = build_problem(RuntimeError("password=hunter2"), method="GET", path="/v1/vms")

    document = problem.document()

    assert document["status"] == 500
    assert document["incident"] in document["detail"]
    assert "hunter2" not in json.dumps(document)


def test_a_database_that_does_not_answer_is_told_without_its_address():
    error = RegistryUnavailableError("connection to db.internal as fuga refused")

    response = build_problem(error, method="GET", path="/v1/vms").response()

    assert b"db.internal" not in response.body
    assert response.headers["retry-after"]


def test_a_missing_token_is_answered_with_the_scheme_to_use():
    response = build_problem(
        rest_errors.UnauthorizedError("no token was sent"), method="GET", path="/v1/vms"
    ).response()

    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.headers["content-type"] == MEDIA_TYPE


@pytest.mark.parametrize(
    "found",
    [
        float("nan"),
        float("inf"),
        10**4000,
        -(2**64),
        "\ud800",
        "x" * 10_000,
        {"a": 1},
        [1, 2],
        b"x",
    ],
)
def test_whatever_was_found_can_be_quoted(found: object):
    document = build_problem(
        InvalidError("count", quotable_value(found), "less"), method="POST", path="/v1/requests"
    )

    body = json.loads(document.response().body)

    assert len(str(body["errors"][0]["found"])) <= 130
