"""Errors that the API raises itself, before other packages handle a call."""

from __future__ import annotations

from pathlib import Path

from controller.errors import ControllerError


class RestError(ControllerError):
    """Base of the errors that only a caller of the API causes."""


class UnauthorizedError(RestError):
    """The token is missing, unknown, revoked or expired."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; send the header 'Authorization: Bearer TOKEN' with a valid token"
        )
        self.reason = reason


class LoginRefusedError(RestError):
    """A login failed: unknown, used or expired link, or the provider or its rules refused it."""


class ProviderError(RestError):
    """The OpenID Connect provider does not answer as it has to. Try again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the OpenID Connect provider cannot be used: {reason}")
        self.reason = reason


class ForbiddenError(RestError):
    """The token is valid but does not allow this call."""

    def __init__(self, message: str, *, needed: str, given: str) -> None:
        super().__init__(
            f"{message}; this needs a token of scope {needed}, the given one has {given}"
        )
        self.needed = needed
        self.given = given


class RateLimitedError(RestError):
    """Too many calls with one token, or without a valid one from one address."""

    def __init__(self, reason: str, retry_after_s: int) -> None:
        super().__init__(f"{reason}; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class OverloadedError(RestError):
    """The server handles its maximum number of calls. Try again."""

    def __init__(self, under_way: int) -> None:
        super().__init__(
            f"the server handles {under_way} of your calls; it has no place for more now; try again"
        )


class BusyError(OverloadedError):
    """Too much work of a kind is under way, and none of it ended in time."""

    def __init__(self, others: str) -> None:
        RestError.__init__(self, f"{others}; try again later")


class MalformedBodyError(RestError):
    """The body is not JSON."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the body is not JSON: {reason}")
        self.reason = reason


class BodyTooLargeError(RestError):
    """The body exceeds the size limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit = limit


class UnsupportedMediaTypeError(RestError):
    """The path does not accept the body's content type."""

    def __init__(self, found: str | None, wanted: str = "application/json") -> None:
        said = f"is sent as {found[:100]!r}" if found else "has no Content-Type"
        super().__init__(f"the body {said}; send 'Content-Type: {wanted}'")
        self.found = found


class HeaderError(RestError):
    """A header of the call is invalid."""

    def __init__(self, name: str, found: str, allowed: str) -> None:
        super().__init__(f"{name}: found {found[:100]!r}, allowed is {allowed}")
        self.name = name
        self.found = found
        self.allowed = allowed


class VersionMismatchError(RestError):
    """The resource has changed since the caller read it; the call changed nothing."""

    def __init__(self, kind: str, key: str, given: str, current: str) -> None:
        super().__init__(
            f"{kind} {key} has version {current}, not {given[:100]}: nothing was changed;"
            " read it again and retry"
        )
        self.current = current


class ListenError(RestError):
    """The API cannot listen at its address."""

    def __init__(self, listen: str, reason: str) -> None:
        super().__init__(
            f"cannot listen on {listen}: {reason}; set another address with FUGA_LISTEN"
        )
        self.listen = listen
        self.reason = reason


class CertificateError(RestError):
    """The API cannot load its certificate."""

    def __init__(self, chain: Path, key: Path, reason: str) -> None:
        super().__init__(
            f"cannot load certificate {chain} with key {key}: {reason};"
            " FUGA_TLS_CERT and FUGA_TLS_KEY must be matching PEM files"
        )
