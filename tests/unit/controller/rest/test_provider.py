"""A provider that hangs, drips, floods, lies or changes its keys: what becomes of a login."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from controller.oidc_mapping import OidcRule
from controller.rest.login.identity_provider import IdentityProvider, ProviderSettings
from controller.rest.problems.errors import LoginRefusedError, OverloadedError, ProviderError
from tests.unit.controller.rest.test_id_tokens import KEYS, OTHER, RSA, jwk, signed

VERIFIER: Final = "v" * 43
DISCOVERY: Final = "/.well-known/openid-configuration"
#: Answers a call: with (status, headers, body), or by itself.
Behaviour = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes] | None]


class Site:
    """A provider whose every path does what a test says."""

    def __init__(self) -> None:
        self.paths: dict[str, Behaviour] = {}
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                self.rfile.read(int(self.headers.get("content-length", 0)))
                answer = site.paths[self.path](self)
                if answer is not None:
                    status, headers, body = answer
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(body)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - as the library calls it

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self.paths[DISCOVERY] = says(self.described())
        self.paths["/jwks"] = says({"keys": list(KEYS)})

    def described(self, **changes: Any) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            **changes,
        }

    def tokens(self, **given: Any) -> Behaviour:
        return says({"id_token": signed(iss=self.issuer, **given)})


def says(what: Any, status: int = 200, **headers: str) -> Behaviour:
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    return lambda _: (status, headers, body)


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def provider(site: Site, **given: Any) -> IdentityProvider:
    rules = (OidcRule(claim="groups", value="physics", tenant="a"),)
    settings = ProviderSettings(issuer=site.issuer, client_id="fuga", rules=rules)
    return IdentityProvider(settings, **({"deadline_s": 1.0} | given))


def admitted(found: IdentityProvider) -> str | None:
    return asyncio.run(found.admit("code", VERIFIER, "http://127.0.0.1/web/")).tenant


def hangs(_: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


def drips(call: BaseHTTPRequestHandler) -> None:
    call.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(40):
        try:
            call.wfile.write(b"X-%d: x\r\n" % number)
            call.wfile.flush()
        except OSError:
            return
        time.sleep(0.1)


def floods(call: BaseHTTPRequestHandler) -> None:
    call.send_response(200)
    call.end_headers()
    try:
        for _ in range(1000):
            call.wfile.write(b" " * 65_536)
    except OSError:
        return


NOT_PACKED: Final = gzip.compress(b" " * 1_000_000)
BEHAVIOURS: Final[dict[str, tuple[Callable[[Site], Behaviour], str]]] = {
    "hangs": (lambda _: hangs, "does not answer within 1 s"),
    "drips": (lambda _: drips, "does not answer within 1 s"),
    "floods": (lambda _: floods, "more than 262144 bytes"),
    "packs": (lambda _: says(NOT_PACKED, **{"Content-Encoding": "gzip"}), "packs its answers"),
    "leads elsewhere": (lambda _: says({}, 302, Location="http://192.0.2.1/"), "answered 302"),
    "is no JSON": (lambda _: says(b"<html>"), "no JSON object"),
    "is nested": (lambda _: says(b"[" * 100_000), "no JSON object"),
    "is another": (lambda s: says(s.described(issuer="https://evil")), "another issuer"),
    "has no PKCE": (
        lambda s: says(s.described(code_challenge_methods_supported=["plain"])),
        "no PKCE with S256",
    ),
    "sends codes in the clear": (
        lambda s: says(s.described(token_endpoint="http://sso.example.org/t")),
        "token_endpoint is no https address",
    ),
    "sends browsers to a script": (
        lambda s: says(s.described(authorization_endpoint="javascript:alert(1)")),
        "authorization_endpoint is no https address",
    ),
    "has no keys' address": (lambda s: says(s.described(jwks_uri=None)), "jwks_uri"),
}


@pytest.mark.parametrize("what", BEHAVIOURS)
def test_a_provider_that_does_not_answer_as_it_has_to_is_waited_for_once_and_not_long(
    site: Site, what: str
) -> None:
    make, shown = BEHAVIOURS[what]
    site.paths[DISCOVERY] = make(site)
    found = provider(site)
    began = time.monotonic()

    for _ in range(2):
        with pytest.raises(ProviderError, match=shown):
            admitted(found)

    assert time.monotonic() - began < 2.9
    assert site.asked == [DISCOVERY], "it is not asked again at once"


def test_a_login_that_the_provider_vouches_for_is_let_in_and_its_keys_are_kept(site: Site) -> None:
    site.paths["/token"] = site.tokens()
    found = provider(site)

    assert [admitted(found), admitted(found)] == ["a", "a"]

    assert site.asked == [DISCOVERY, "/token", "/jwks", "/token"]


def test_new_keys_are_asked_for_when_a_token_is_signed_with_one_but_not_all_the_time(
    site: Site,
) -> None:
    now = [0.0]
    found = provider(site, clock=lambda: now[0])
    site.paths["/token"] = site.tokens()
    admitted(found)
    site.paths["/token"] = site.tokens(key=OTHER, kid="new")
    site.paths["/jwks"] = says({"keys": [*KEYS, jwk(OTHER, "new")]})
    with pytest.raises(LoginRefusedError, match="does not publish"):
        admitted(found)
    assert site.asked.count("/jwks") == 1

    now[0] = 11.0
    assert admitted(found) == "a"

    assert site.asked.count("/jwks") == 2
    site.paths["/token"] = site.tokens(key=RSA, kid="nobody's")
    with pytest.raises(LoginRefusedError):
        admitted(found)
    assert site.asked.count("/jwks") == 2


def test_what_the_provider_refuses_and_what_it_answers_to_codes_is_told_in_words(
    site: Site,
) -> None:
    refused = ((says({"error": "invalid_grant"}, 400), "invalid_grant"),
               (says({"error": "<b>\n" * 99}, 401), "no reason"),
               (site.tokens(nonce="of another"), "of another login"),
               (site.tokens(groups=["guests"]), "no rule of this site lets you in"),
               (site.tokens(groups=None), "no rule of this site lets you in"))  # fmt: skip
    for behaviour, shown in refused:
        site.paths["/token"] = behaviour
        with pytest.raises(LoginRefusedError, match=shown):
            admitted(provider(site))
    for behaviour in (says({}), says({"id_token": 1}), says({}, 500), says([])):
        site.paths["/token"] = behaviour
        with pytest.raises(ProviderError):
            admitted(provider(site))
    site.paths["/token"], site.paths["/jwks"] = site.tokens(), says({"keys": "none"})
    with pytest.raises(ProviderError, match="without keys"):
        admitted(provider(site))


def test_logins_that_wait_for_the_provider_are_few(site: Site) -> None:
    site.paths[DISCOVERY] = hangs
    found = provider(site)

    async def flood() -> list[Any]:
        waiting = (found.admit("code", VERIFIER, "http://127.0.0.1/") for _ in range(50))
        return await asyncio.gather(*waiting, return_exceptions=True)

    began = time.monotonic()
    ended = asyncio.run(flood())

    assert [type(each) for each in ended].count(OverloadedError) == 50 - 32
    assert [type(each) for each in ended].count(ProviderError) == 32
    assert time.monotonic() - began < 2.9, "one asks, and all hear what it was told"


def test_only_one_of_those_who_ask_how_to_log_in_waits_for_a_provider_that_hangs(
    site: Site,
) -> None:
    site.paths[DISCOVERY] = hangs
    found = provider(site)

    async def ask() -> float:
        first = asyncio.create_task(found.metadata_at_once())
        await asyncio.sleep(0.1)
        began = time.monotonic()
        with pytest.raises(ProviderError, match="is being called"):
            await found.metadata_at_once()
        took = time.monotonic() - began
        with pytest.raises(ProviderError, match="within 1 s"):
            await first
        return took

    assert asyncio.run(ask()) < 0.5
