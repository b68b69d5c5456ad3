"""Client of the OpenID Connect provider: reads its metadata, and exchanges codes for ID tokens.

The provider is not trusted: it may hang, answer slowly, answer anything, or be an impostor. Each
call has one deadline from the name's lookup to the last byte. Answers are bounded and never
decompressed. No redirect is followed, and no proxy is used.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import structlog

from controller.oidc_mapping import OidcRule, is_loopback, is_private_address, match_admission
from controller.rest.login.id_tokens import UnknownKeyError, derive_nonce, verify_id_token
from controller.rest.problems.errors import LoginRefusedError, OverloadedError, ProviderError
from registry.tenancy import Admission

DEADLINE_S: Final = 10.0
MAX_BYTES: Final = 256 * 1024
#: Time for which the provider's metadata and keys are cached.
KEPT_S: Final = 3600.0
#: Minimum time between calls after a failure, or after an unknown key.
REFETCH_AFTER_S: Final = 10.0
#: Maximum number of logins that wait for the provider in one process.
MAX_AT_ONCE: Final = 32
_ERROR: Final = re.compile(r"[a-z_]{1,40}")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """Settings of the provider: its address, our client there, and the rules for users."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    scopes: Sequence[str] = ("openid", "profile")
    rules: Sequence[OidcRule] = ()
    name_claim: str = "preferred_username"
    ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetadata:
    """The metadata of an OpenID Connect provider, as far as it is used here."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    in_fragment: bool  #: codes may be returned in the URL's fragment, which no server logs
    secret_in_body: bool


@dataclass(slots=True)
class _CachedDocument:
    """A cached document of the provider, or the error of the last fetch."""

    until: float = 0.0
    value: Any = None
    error: ProviderError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class IdentityProvider:
    """The provider's client, for one event loop at a time."""

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._deadline_s = deadline_s
        self._clock = clock
        self._local = is_loopback(settings.issuer)
        self._tls = ssl.create_default_context(cafile=settings.ca)
        self._described = _CachedDocument()
        self._keys = _CachedDocument()
        self._under_way = 0

    async def metadata(self) -> ProviderMetadata:
        """Return the provider's metadata, cached; raises `ProviderError`."""
        found: ProviderMetadata = await self._fetch_cached(self._described, self._fetch_metadata)
        return found

    async def metadata_at_once(self) -> ProviderMetadata:
        """Return the metadata; raise `ProviderError` at once while another call fetches it.

        Anybody may call this without a token, so waiting calls could crowd out others.
        """
        if self._described.lock.locked():
            raise ProviderError("it is being called; try again")
        return await self.metadata()

    async def admit(
        self, code: str, verifier: str, redirect_uri: str, *, tenant: str | None = None
    ) -> Admission:
        """Exchange a code of the provider for the identity of its user.

        Raises
        ------
        LoginRefusedError
            If the code or the ID token is not valid, or no rule admits the user.
        OverloadedError
            If too many logins wait for the provider.
        ProviderError
            If the provider does not answer correctly.
        """
        async with self._limit_logins():
            id_token = await self._exchange_code(code, verifier, redirect_uri)
            claims = await self._verified_claims(id_token, derive_nonce(verifier))
        found = match_admission(
            claims, self.settings.rules, name_claim=self.settings.name_claim, tenant=tenant
        )
        if found is None:
            whom = "you in" if tenant is None else f"you in as tenant {tenant}"
            raise LoginRefusedError(
                f"the provider knows you, but no rule of this site lets {whom}; an operator can"
                " add one (FUGA_OIDC_RULES)"
            )
        return found

    @asynccontextmanager
    async def _limit_logins(self) -> AsyncIterator[None]:
        """Count a login that is under way; refuse it if there are too many."""
        if self._under_way >= MAX_AT_ONCE:
            raise OverloadedError(self._under_way)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def _exchange_code(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Exchange an authorization code for an ID token at the provider's token endpoint."""
        described = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        auth, secret = None, self.settings.client_secret
        if secret is None or described.secret_in_body:
            form["client_id"] = self.settings.client_id
        if secret is not None and described.secret_in_body:
            form["client_secret"] = secret
        elif secret is not None:
            # Name and secret are form-encoded first (RFC 6749, 2.3.1).
            auth = (quote(self.settings.client_id, safe=""), quote(secret, safe=""))
        status, answer = await self._call_provider(
            "POST", described.token_endpoint, data=form, auth=auth
        )
        if status in (400, 401):
            error = answer.get("error")
            reason = error if isinstance(error, str) and _ERROR.fullmatch(error) else "no reason"
            if reason != "invalid_grant":  # then the site's settings are wrong
                log.warning("oidc_exchange_refused", error=reason)
            raise LoginRefusedError(f"the provider refused the login ({reason}); begin again")
        id_token = answer.get("id_token")
        if status != 200 or not isinstance(id_token, str):
            raise ProviderError(f"its answer to a code was {status} without an ID token")
        return id_token

    async def _verified_claims(self, id_token: str, nonce: str) -> Mapping[str, Any]:
        """Verify an ID token; fetch the keys again if no cached key signed it."""
        settings = self.settings
        names = {"issuer": settings.issuer, "client_id": settings.client_id, "nonce": nonce}
        known = await self._fetch_cached(self._keys, self._fetch_keys)
        try:
            return verify_id_token(id_token, known, **names)
        except UnknownKeyError:
            fetched_at = self._keys.until - KEPT_S
            if self._clock() - fetched_at < REFETCH_AFTER_S:
                raise
        self._keys.until = 0.0
        return verify_id_token(
            id_token, await self._fetch_cached(self._keys, self._fetch_keys), **names
        )

    async def _fetch_cached(self, kept: _CachedDocument, fetch: Callable[[], Any]) -> Any:
        """Return a document of the provider from the cache; fetch it if it is missing or old."""
        async with kept.lock:
            if self._clock() >= kept.until:
                try:
                    kept.value, kept.error = await fetch(), None
                    kept.until = self._clock() + KEPT_S
                except ProviderError as error:
                    log.warning("oidc_provider_failed", error=error.reason)
                    kept.error, kept.until = error, self._clock() + REFETCH_AFTER_S
            if kept.error is not None:
                raise ProviderError(kept.error.reason)
            return kept.value

    async def _fetch_metadata(self) -> ProviderMetadata:
        """Fetch the provider's metadata (OpenID Connect Discovery) and check it."""
        issuer = self.settings.issuer
        address = issuer.rstrip("/") + "/.well-known/openid-configuration"
        status, said = await self._call_provider("GET", address)
        if status != 200:
            raise ProviderError(f"{address} answered {status}")
        if said.get("issuer") != issuer:
            raise ProviderError("it says that it is another issuer than FUGA_OIDC_ISSUER")
        methods = said.get("code_challenge_methods_supported")
        if methods is not None and "S256" not in _string_list(methods):
            raise ProviderError("it offers no PKCE with S256")
        auth_methods = _string_list(said.get("token_endpoint_auth_methods_supported"))
        return ProviderMetadata(
            authorization_endpoint=self._private_endpoint(said, "authorization_endpoint"),
            token_endpoint=self._private_endpoint(said, "token_endpoint"),
            jwks_uri=self._private_endpoint(said, "jwks_uri"),
            in_fragment="fragment" in _string_list(said.get("response_modes_supported")),
            secret_in_body="client_secret_post" in auth_methods
            and "client_secret_basic" not in auth_methods,
        )

    def _private_endpoint(self, said: Mapping[str, Any], name: str) -> str:
        """Return an endpoint of the metadata, if the connection to it is private."""
        address = said.get(name)
        if not isinstance(address, str) or not is_private_address(address, local=self._local):
            raise ProviderError(f"its {name} is no https address")
        return address

    async def _fetch_keys(self) -> Sequence[Mapping[str, Any]]:
        described = await self.metadata()
        status, said = await self._call_provider("GET", described.jwks_uri)
        keys = said.get("keys")
        if status != 200 or not isinstance(keys, list):
            raise ProviderError(f"it answered {status} without keys")
        return tuple(each for each in keys if isinstance(each, dict))

    async def _call_provider(
        self, method: str, address: str, **request: Any
    ) -> tuple[int, dict[str, Any]]:
        """Call the provider; return the status and the JSON object of its answer."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(self._deadline_s),
                httpx.AsyncClient(
                    trust_env=False,
                    follow_redirects=False,
                    verify=self._tls,
                    timeout=self._deadline_s,
                ) as client,
                client.stream(method, address, headers=headers, **request) as answer,
            ):
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise ProviderError("it packs its answers")
                body = b""
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise ProviderError(f"it answers with more than {MAX_BYTES} bytes")
        except TimeoutError:
            raise ProviderError(f"it does not answer within {self._deadline_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ProviderError(f"it cannot be reached ({type(error).__name__})") from error
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ProviderError(f"its answer {answer.status_code} is no JSON object")
        return answer.status_code, content


def _string_list(value: Any) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
