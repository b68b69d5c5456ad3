"""The OpenAPI document: every operation with the problems that it can answer."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from controller.rest.problems.documents import MEDIA_TYPE
from controller.rest.schemas import ProblemDocument
from controller.rest.writes.versions import UPDATES, versioned_at

SCHEMA_REF: Final = "#/components/schemas/"
DESCRIPTION: Final = """\
Ask for virtual machines, see where they are and why.

Send `Authorization: Bearer TOKEN`. A tenant's token sees what is that tenant's own; an
operator's sees all. Every error is an RFC 9457 problem document. Lists come in pages:
pass `next` of one as `cursor` of the next. A POST that creates something is safe to
repeat with an `Idempotency-Key`. A GET of one thing tells its version as `ETag`; an
update that names it in `If-Match` is made only if nobody else changed it meanwhile, and
else answered 412 with the current one. Without `If-Match` the last one wins.
"""

_MEANINGS: Final = {
    400: "The body is not JSON.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token may not do this, or a quota forbids it.",
    404: "There is no such thing, or it is another tenant's.",
    409: "The present state forbids it.",
    410: "It was kept for a while, and no longer is.",
    412: "It is no longer what `If-Match` names; nothing was changed.",
    413: "The body is too large.",
    415: "The body is sent as another type than this path takes.",
    422: "The input is not valid; `errors` says where.",
    429: "Too many calls at once; `Retry-After` says in how many seconds to try again.",
    500: "The controller failed; `incident` says where in its log.",
    504: "No worker, or no host, answered in time.",
    503: "The database does not answer or needs an upgrade, or too many calls are under way.",
    507: "The image store cannot be written to.",
}
_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 1000},
    "description": "The `ETag` of an earlier GET: change it only if it still is what was read.",
}
_ETAG: Final = {
    "schema": {"type": "string"},
    "description": "Version of what clients set of it, for `If-Match`.",
}
_BODY_STATUSES: Final = (400, 413, 415)
_READING: Final = frozenset({"get"})
_METHODS: Final = frozenset({"get", "post", "patch", "put", "delete"})


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of an operation that may answer with these problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": SCHEMA_REF + ProblemDocument.__name__}}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document; built once per app."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _add_problem_schema(schemas)
        for template, path in document["paths"].items():
            for method, operation in path.items():
                if method in _METHODS:
                    _add_versions(template, method, operation)
                    _complete(method, operation)
        app.openapi_schema = document
    return app.openapi_schema


def _add_problem_schema(schemas: dict[str, Any]) -> None:
    schema = ProblemDocument.model_json_schema(ref_template=SCHEMA_REF + "{model}")
    schemas.update(schema.pop("$defs"))
    schemas[ProblemDocument.__name__] = schema


def _add_versions(template: str, method: str, operation: dict[str, Any]) -> None:
    """Tell of `ETag` and `If-Match` where things have versions."""
    collection, _, thing = template.removeprefix("/v1/").partition("/")
    _, slash, below = thing.partition("/")
    if not thing.startswith("{") or versioned_at(collection, slash + below) is None:
        return
    if method.upper() in UPDATES:
        operation.setdefault("parameters", []).append(_IF_MATCH)
        operation["responses"] |= {str(k): v for k, v in problems(412).items()}
    elif method == "get" and not slash:
        operation["responses"]["200"]["headers"] = {"ETag": _ETAG}


def _complete(method: str, operation: dict[str, Any]) -> None:
    """Add what middleware may answer to any operation, and order all answers by status."""
    statuses = [500, 503]
    if "security" in operation:
        statuses.extend((401, 429) if method in _READING else (401, 403, 429))
    if "requestBody" in operation:
        statuses.extend(_BODY_STATUSES)
    if "requestBody" in operation or operation.get("parameters"):
        statuses.append(422)
    answers = operation["responses"]
    for status, answer in problems(*statuses).items():
        answers.setdefault(str(status), answer)
        if "HTTPValidationError" in str(answers[str(status)]):
            answers[str(status)] = answer
    operation["responses"] = dict(sorted(answers.items()))
