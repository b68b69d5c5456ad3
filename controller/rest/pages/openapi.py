"""The OpenAPI document: every operation with its possible problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from controller.rest.etags import UPDATES, versioned_resource_at
from controller.rest.problems.documents import MEDIA_TYPE
from controller.rest.schemas.operations import ProblemDocument
from service.version import engine_version

SCHEMA_REF: Final = "#/components/schemas/"
TITLE: Final = "fuga"
_DESCRIPTION: Final = """\
Request virtual machines, and see where they run and why.

Send `Authorization: Bearer TOKEN`. A tenant's token sees that tenant's own things; an
operator's sees all. Every error is an RFC 9457 problem document. Lists come in pages:
pass `next` of one page as `cursor` of the next. A POST that creates something is safe to
repeat with an `Idempotency-Key`. A GET of one thing returns its version as `ETag`. An
update with this `If-Match` succeeds only if the thing has not changed since; otherwise
the answer is 412 with the current version. Without `If-Match` the last update wins.
"""

_MEANINGS: Final = {
    400: "The body is not valid JSON.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token does not allow this, or a quota is exceeded.",
    404: "Not found, or it belongs to another tenant.",
    409: "Not possible in the present state.",
    410: "It has been purged, or is damaged.",
    412: "It does not match `If-Match`; nothing was changed.",
    413: "The body is too large.",
    415: "The path does not accept the body's content type.",
    422: "The input is invalid; `errors` lists the places.",
    429: "Too many calls; try again after `Retry-After` seconds.",
    500: "Internal error; the log has details under `incident`.",
    504: "No worker or host answered in time.",
    503: "The database does not answer or needs an upgrade, or too many calls are under way.",
    507: "The image store cannot be written.",
}
_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 1000},
    "description": "The `ETag` of an earlier GET: update only if it is unchanged.",
}
_ETAG: Final = {
    "schema": {"type": "string"},
    "description": "Version of the fields that clients set, for `If-Match`.",
}
_BODY_STATUSES: Final = (400, 413, 415)
_READING: Final = frozenset({"get"})
_METHODS: Final = frozenset({"get", "post", "patch", "put", "delete"})


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of an operation for these kinds of problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": SCHEMA_REF + ProblemDocument.__name__}}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


def build_openapi(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    document = get_openapi(
        title=TITLE, version=engine_version(), description=_DESCRIPTION, routes=routes
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    _add_problem_schema(schemas)
    for template, path in document["paths"].items():
        for method, operation in path.items():
            if method in _METHODS:
                _add_versions(template, method, operation)
                _add_middleware_answers(method, operation)
    return document


def _add_problem_schema(schemas: dict[str, Any]) -> None:
    schema = ProblemDocument.model_json_schema(ref_template=SCHEMA_REF + "{model}")
    schemas.update(schema.pop("$defs"))
    schemas[ProblemDocument.__name__] = schema


def _add_versions(template: str, method: str, operation: dict[str, Any]) -> None:
    """Add `ETag` and `If-Match` to operations on versioned resources."""
    collection, _, thing = template.removeprefix("/v1/").partition("/")
    _, slash, below = thing.partition("/")
    if not thing.startswith("{") or versioned_resource_at(collection, slash + below) is None:
        return
    if method.upper() in UPDATES:
        operation.setdefault("parameters", []).append(_IF_MATCH)
        operation["responses"] |= {str(k): v for k, v in problem_responses(412).items()}
    elif method == "get":
        operation["responses"]["200"]["headers"] = {"ETag": _ETAG}


def _add_middleware_answers(method: str, operation: dict[str, Any]) -> None:
    """Add the answers of the middleware to an operation, and sort its answers by status."""
    statuses = [500, 503]
    if "security" in operation:
        statuses.extend((401, 429) if method in _READING else (401, 403, 429))
    if "requestBody" in operation:
        statuses.extend(_BODY_STATUSES)
    if "requestBody" in operation or operation.get("parameters"):
        statuses.append(422)
    answers = operation["responses"]
    for status, answer in problem_responses(*statuses).items():
        answers.setdefault(str(status), answer)
        if "HTTPValidationError" in str(answers[str(status)]):
            answers[str(status)] = answer
    operation["responses"] = dict(sorted(answers.items()))
