"""Calls the REST API: plain JSON in and out, problems as errors, lost calls made again."""

from __future__ import annotations

import json
import os
import random
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import httpx

from controller.client.collections import Collection
from controller.client.connection import ApiConnection
from controller.client.errors import ApiProblemError, ApiUnreachableError
from controller.client.failover import FailoverTransport, is_surely_unsent

if TYPE_CHECKING:
    from controller.client import models  # types alone: a hundred of them take time to make

Json: TypeAlias = dict[str, Any]

PAGE: Final = 500
_PIECE_BYTES: Final = 1 << 18
_UPLOAD_TIMEOUT_S: Final = 600.0  #: of a silence: the API checks and stores what it was sent
_REPLAY_TIMEOUT_S: Final = 660.0  #: the API gives up before; a repeated call would begin another
_RETRY_AFTER_S: Final = (0.2, 0.5, 1.0)  #: pauses between attempts
#: Pauses while an attempt of ours is still at work; what it waits for, a database that is
#: started again say, takes longer than a connection that was refused.
_AT_WORK_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
#: Three heartbeats of a stream without events.
_SILENCE_S: Final = 45.0
_EVENT: Final = "message"  #: the kind of server-sent events that name none
_LONGEST_WAIT_S: Final = 30  #: that the API may request; above it the call fails
#: The second of two equal calls changes nothing that the first did not.
_IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})


class Client:
    """Calls paths below ``/v1``, and has the typed collections of their resources.

    Every creating POST carries an Idempotency-Key that stays the same over the
    attempts, so that a lost answer never makes two of a thing. What the API has no
    time for (429, 503) is repeated after that time, if it may be repeated.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        timeout_s: float = 30.0,
        agent: str = "fuga-client",
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        retry_after_s: tuple[float, ...] = _RETRY_AFTER_S,
        at_work_s: tuple[float, ...] = _AT_WORK_S,
    ) -> None:
        headers = {"Accept": "application/json", "User-Agent": agent}
        if connection.token:
            headers["Authorization"] = f"Bearer {connection.token}"
        self.url = connection.url
        self._called = " or ".join(connection.urls)
        self._sleep = sleep
        self._retry_after_s = retry_after_s
        self._at_work_s = at_work_s
        self._addresses = FailoverTransport(
            connection.urls,
            transport or httpx.HTTPTransport(verify=_ssl_context(connection), trust_env=False),
        )
        # The API is addressed directly: a proxy from the environment would get the token.
        self._http = httpx.Client(
            base_url=connection.url,
            headers=headers,
            timeout=timeout_s,
            transport=self._addresses,
            trust_env=False,
        )
        self.requests: Collection[models.Request] = Collection(self, "requests")
        self.vms: Collection[models.Vm] = Collection(self, "vms")
        self.vm_types: Collection[models.VmType] = Collection(self, "vm-types")
        self.tenants: Collection[models.Tenant] = Collection(self, "tenants")
        self.hosts: Collection[models.Host] = Collection(self, "hosts")
        self.rounds: Collection[models.RoundSummary] = Collection(self, "rounds")

    def get(self, path: str, **query: Any) -> Json:
        """Read a resource, or one page of a list."""
        return self._json_content(self._call_api("GET", path, query=query))

    def versioned(self, path: str) -> tuple[Json, str | None]:
        """Read a resource and its version for ``if_match``."""
        answer = self._call_api("GET", path)
        return self._json_content(answer), answer.headers.get("ETag")

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Json:
        """Create a resource. Repeated attempts of the call create no second one."""
        answer = self._call_api(
            "POST", path, query=query, body=body or {}, headers=_idempotency_header()
        )
        return self._json_content(answer)

    def patch(
        self, path: str, body: Mapping[str, Any], *, if_match: str | None = None, **query: Any
    ) -> Json:
        """Change a resource; with ``if_match`` only if it has that version."""
        condition = _if_match_header(if_match)
        return self._json_content(
            self._call_api("PATCH", path, query=query, body=body, headers=condition)
        )

    def put(self, path: str, body: Mapping[str, Any]) -> Json:
        """Replace a resource of the API by PUT."""
        return self._json_content(self._call_api("PUT", path, body=body))

    def delete(self, path: str, *, if_match: str | None = None, **query: Any) -> Json:
        """Delete a resource; with ``if_match`` only if it has that version."""
        return self._json_content(
            self._call_api("DELETE", path, query=query, headers=_if_match_header(if_match))
        )

    def upload(
        self,
        path: str,
        content: BinaryIO,
        *,
        query: Mapping[str, Any],
        report: Callable[[int, int], None],
    ) -> Json:
        """Upload a file; ``report`` is called with the bytes sent and the file's size."""
        size = content.seek(0, os.SEEK_END)
        content.seek(0)

        def pieces() -> Iterator[bytes]:
            while piece := content.read(_PIECE_BYTES):
                yield piece
                report(content.tell(), size)

        try:
            response = self._http.post(
                f"/v1/{path}",
                params={name: value for name, value in query.items() if value is not None},
                content=pieces(),
                headers={
                    **_idempotency_header(),
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(size),
                },
                timeout=_UPLOAD_TIMEOUT_S,
            )
        except httpx.TransportError as error:
            raise self._unreachable_error(error) from error
        if response.is_success:
            return self._json_content(response)
        raise ApiProblemError(response.status_code, _problem_document(response))

    def replay(self, number: int) -> Json:
        """Recompute a stored round, which may take as long as the round did."""
        path = f"rounds/{number}/replay"
        return self._json_content(
            self._call_api("POST", path, body={}, timeout_s=_REPLAY_TIMEOUT_S)
        )

    def replay_plan(self, id: str) -> Json:  # noqa: A002
        """Decide a stored plan again, which may take as long as the plan did."""
        path = f"plans/{id}/replay"
        return self._json_content(
            self._call_api("POST", path, body={}, timeout_s=_REPLAY_TIMEOUT_S)
        )

    def game(self, number: int, steps: int) -> Json:
        """Recompute a stored round and return its steps."""
        path = f"rounds/{number}/game"
        return self._json_content(
            self._call_api("GET", path, query={"steps": steps}, timeout_s=_REPLAY_TIMEOUT_S)
        )

    def second_policy(self, number: int, body: Mapping[str, Any]) -> Json:
        """Decide a stored round by another policy, without a time limit."""
        path = f"rounds/{number}/second-policy"
        return self._json_content(
            self._call_api("POST", path, body=body, timeout_s=_REPLAY_TIMEOUT_S)
        )

    def survival(self, domain: str) -> Json:
        """Return which failure domains may fail. Each one takes as long as a round."""
        query = {"domain": domain}
        path = "capacity/survival"
        return self._json_content(
            self._call_api("GET", path, query=query, timeout_s=_REPLAY_TIMEOUT_S)
        )

    def begin_roll(self, body: Mapping[str, Any]) -> Json:
        """Begin a roll; wait until its turns are planned."""
        return self._json_content(
            self._call_api(
                "POST",
                "rolls",
                body=body,
                headers=_idempotency_header(),
                timeout_s=_REPLAY_TIMEOUT_S,
            )
        )

    def items(self, path: str, *, max_items: int | None = None, **query: Any) -> Iterator[Json]:
        """Yield the items of a list page by page, up to ``max_items``."""
        cursor: str | None = None
        left = max_items
        while left is None or left > 0:
            limit = PAGE if left is None else min(PAGE, left)
            page = self.get(path, limit=limit, cursor=cursor, **query)
            yield from page["items"]
            cursor = page.get("next")
            if left is not None:
                left -= len(page["items"])
            if cursor is None:
                return

    def follow(self, path: str, **query: Any) -> Iterator[tuple[str, Json]]:
        """Read server-sent events, each with its kind, until the stream ends.

        Raises
        ------
        ApiProblemError
            If the API refuses it.
        ApiUnreachableError
            If the API does not answer, or the stream breaks off.
        """
        parameters = {name: value for name, value in query.items() if value is not None}
        headers = {"Accept": "text/event-stream"}
        try:
            with self._http.stream(
                "GET", f"/v1/{path}", params=parameters, headers=headers, timeout=_SILENCE_S
            ) as response:
                if not response.is_success:
                    response.read()
                    raise ApiProblemError(response.status_code, _problem_document(response))
                kind = _EVENT
                for line in response.iter_lines():
                    name, _, value = line.partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        yield kind, json.loads(value)
                        kind = _EVENT
        except httpx.TransportError as error:
            raise self._unreachable_error(error) from error

    def ready(self) -> bool:
        """Ask whether the API answers and has its database."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Close the connections to the API."""
        self._http.close()

    def _call_api(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Make a call; return its answer, or raise `ApiProblemError` for a problem."""
        response = self._send_with_retries(
            method,
            f"/v1/{path}",
            params={name: value for name, value in (query or {}).items() if value is not None},
            json=body,
            headers=headers,
            timeout=httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s,
        )
        if response.is_success:
            return response
        raise ApiProblemError(response.status_code, _problem_document(response))

    def _send_with_retries(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a call; send it again if it was lost or refused for now, and may be repeated."""
        if request["json"] is None:
            del request["json"]
        pauses, at_work = iter(self._retry_after_s), iter(self._at_work_s)
        while True:
            try:
                response = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                repeatable = is_surely_unsent(error) or _may_be_repeated(method, request)
                pause = next(pauses, None) if repeatable else None
                if pause is None:
                    raise self._unreachable_error(error) from error
            except httpx.InvalidURL as error:
                raise ApiUnreachableError(self.url, str(error)) from error
            else:
                wait = _retry_delay_s(response, method, request)
                if wait is not None:
                    pause = None if next(pauses, None) is None else wait
                elif _is_in_progress(response):
                    pause = next(at_work, None)
                else:
                    return response
                if pause is None:
                    return response
            self._sleep(pause)

    def _unreachable_error(self, error: httpx.TransportError) -> ApiUnreachableError:
        reason = self._addresses.errors_text(str(error) or repr(error))
        return ApiUnreachableError(self._called, reason)

    def _json_content(self, response: httpx.Response) -> Json:
        """Return the JSON object of an answer; empty for an answer without content."""
        if not response.content:
            return {}
        try:
            content = response.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ApiUnreachableError(self.url, "the server there is not fuga's API")
        return content


def _ssl_context(connection: ApiConnection) -> ssl.SSLContext:
    """Return the TLS context with the certificate authorities to trust."""
    if not any(url.startswith("https:") for url in connection.urls):
        # No certificate is checked; reading the system's certificates takes time.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=connection.ca)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"FUGA_CA: cannot read certificates from {connection.ca}: {reason}"
        raise ApiUnreachableError(connection.url, message) from None


def _if_match_header(if_match: str | None) -> dict[str, str] | None:
    return {"If-Match": if_match} if if_match is not None else None


def _problem_document(response: httpx.Response) -> Mapping[str, Any]:
    """Return the problem document of an answer, or one made from its status."""
    try:
        content = response.json()
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    return {"title": f"HTTP status {response.status_code} {response.reason_phrase}"}


def _retry_delay_s(
    response: httpx.Response, method: str, request: Mapping[str, Any]
) -> float | None:
    """Return the seconds to wait before a retry; None if the call must not be retried."""
    said = response.headers.get("Retry-After", "")
    if not (
        _may_be_repeated(method, request)
        and response.status_code in (429, 503)
        and said.isdecimal()
    ):
        return None
    if int(said[:9]) > _LONGEST_WAIT_S:
        return None
    # Those who were refused together must not come back together.
    return int(said) * random.uniform(1, 1.5)  # noqa: S311


def _idempotency_header() -> dict[str, str]:
    """Return a new Idempotency-Key header, for all attempts of one call."""
    return {"Idempotency-Key": str(uuid.uuid4())}


def _may_be_repeated(method: str, request: Mapping[str, Any]) -> bool:
    """Return whether a call may be repeated after it may have been received."""
    return method in _IDEMPOTENT or "Idempotency-Key" in (request.get("headers") or {})


def _is_in_progress(response: httpx.Response) -> bool:
    return response.status_code == 409 and "in_progress" in str(
        _problem_document(response).get("code")
    )
