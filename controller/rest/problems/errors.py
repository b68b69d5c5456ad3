"""What can be wrong with a call before any of our parts has seen it."""

from __future__ import annotations

from pathlib import Path

from controller.errors import ControllerError


class RestError(ControllerError):
    """Base of the errors that only a caller of the API can make."""


class UnauthorizedError(RestError):
    """No token, or none that we know."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; send the header 'Authorization: Bearer TOKEN' with a live token"
        )
        self.reason = reason


class ForbiddenError(RestError):
    """The token is good, but not for this."""

    def __init__(self, message: str, *, needed: str, given: str) -> None:
        super().__init__(f"{message}; needed is a token of scope {needed}, this one is of {given}")
        self.needed = needed
        self.given = given


class RateLimitedError(RestError):
    """Too many calls with one token, or too many without a good one from one address."""

    def __init__(self, reason: str, retry_after_s: int) -> None:
        super().__init__(f"{reason}; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class OverloadedError(RestError):
    """So many calls are under way that one more would only wait for them."""

    def __init__(self, under_way: int) -> None:
        super().__init__(f"{under_way} calls are under way here, as many as may be; try again")


class MalformedBodyError(RestError):
    """The body is not JSON."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the body is not JSON: {reason}")
        self.reason = reason


class BodyTooLargeError(RestError):
    """The body is larger than any sensible one."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit = limit


class UnsupportedMediaTypeError(RestError):
    """The body is sent as something else than what this path takes."""

    def __init__(self, found: str | None, wanted: str = "application/json") -> None:
        said = f"is sent as {found[:100]!r}" if found else "has no Content-Type"
        super().__init__(f"the body {said}; send 'Content-Type: {wanted}'")
        self.found = found


class HeaderError(RestError):
    """A header of the call is not what it has to be."""

    def __init__(self, name: str, found: str, allowed: str) -> None:
        super().__init__(f"{name}: found {found[:100]!r}, allowed is {allowed}")
        self.name = name
        self.found = found
        self.allowed = allowed


class VersionMismatchError(RestError):
    """What was to be changed is no longer what the caller had read."""

    def __init__(self, kind: str, key: str, given: str, current: str) -> None:
        super().__init__(
            f"{kind} {key} is of version {current} by now, not {given[:100]}: nothing was changed;"
            " read it again and decide anew"
        )
        self.current = current


class ListenError(RestError):
    """The API cannot listen where it was told to."""

    def __init__(self, listen: str, reason: str) -> None:
        super().__init__(f"cannot listen on {listen}: {reason}; FUGA_LISTEN sets another address")
        self.listen = listen
        self.reason = reason


class CertificateError(RestError):
    """The API cannot show the certificate that it was given."""

    def __init__(self, chain: Path, key: Path, reason: str) -> None:
        super().__init__(
            f"no certificate can be made of {chain} with the key {key}: {reason};"
            " FUGA_TLS_CERT and FUGA_TLS_KEY name PEM files that belong together"
        )
