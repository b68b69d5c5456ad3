"""`fuga login` and `fuga logout` at a real provider, with a browser here and with one elsewhere."""

from __future__ import annotations

import json
import re
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import structlog
import typer

from controller.cli.main import main
from controller.rest import create_app
from controller.session.provider_login import CallbackListener, LoginAttempt
from controller.terminal.errors import BadInputError, CliError
from registry import Registry
from tests.register import add_tenant
from tests.servers.provider import PASSWORD, provider_at
from tests.servers.serving import served


def browse(address: str, user: str, *, home: bool = True) -> str:
    """Do what a browser and its user do; return the address where they end."""
    with httpx.Client(follow_redirects=True) as browser:
        form = browser.get(address)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)
        assert token is not None, form.text
        answer = browser.post(
            str(form.url),
            data={"csrfmiddlewaretoken": token[1], "username": user, "password": PASSWORD},
            follow_redirects=False,
        )
        while answer.is_redirect:
            there = str(answer.headers["location"])
            if "/fuga?" in there:
                if home:
                    assert "You can close this page" in browser.get(there).text
                return there
            answer = browser.get(str(answer.url.join(there)), follow_redirects=False)
    raise AssertionError(answer.text)


@pytest.fixture
def run(
    register: Registry,
    issuer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Callable[..., str]]:
    """Run a command for a user with nothing but the address of an API with the provider."""
    add_tenant(register, "a")
    with served(create_app(register, provider=provider_at(issuer))) as url:
        monkeypatch.setenv("FUGA_URL", url)
        for name in ("FUGA_TOKEN", "FUGA_CONFIG", "FUGA_CA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path / "none"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

        def command(*words: str, status: int = 0) -> str:
            with pytest.raises(SystemExit) as ended:
                main(words)
            captured = capsys.readouterr()
            assert (ended.value.code or 0) == status, captured
            return captured.out + captured.err

        yield command


def test_who_logs_in_in_a_browser_gets_a_token_of_hours_until_logging_out(
    run: Callable[..., str], register: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []

    def opened(address: str) -> bool:
        addresses.append(address)
        threading.Thread(target=browse, args=(address, "anna")).start()
        return True

    monkeypatch.setattr("webbrowser.open", opened)

    decided = run("login")

    assert "as tenant a, for 12 h" in decided
    file = tmp_path / "config" / "fuga" / "logins.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ((_, token),) = json.loads(file.read_text())["tokens"].items()
    assert token not in decided
    assert not any(token in each for each in addresses)
    assert "no requests" in run("requests")
    (made,) = (each for each in register.tokens.list().items if each.login)
    assert made.name.startswith("anna-oidc-")
    (event,) = register.events.list(kind="logged_in")
    assert event.data["issuer"].startswith("http://127.0.0.1:")
    assert event.data["subject"] == "1"

    run("logout")

    assert register.tokens.authenticate(token) is None
    assert json.loads(file.read_text())["tokens"] == {}
    assert "no token" in run("requests", status=2)


def test_who_has_no_browser_here_pastes_where_his_ended(
    run: Callable[..., str], register: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[LoginAttempt] = []
    begin = LoginAttempt.begin

    def begun(way: dict[str, str], redirect_uri: str) -> LoginAttempt:
        attempts.append(begin(way, redirect_uri))
        return attempts[-1]

    monkeypatch.setattr(LoginAttempt, "begin", begun)
    monkeypatch.setattr(
        typer, "prompt", lambda *_, **__: browse(attempts[-1].address, "otto", home=False)
    )

    assert "as an operator" in run("login", "--no-browser")
    assert "no hosts" in run("host", "list")

    # No rule lets eve in, and otto is in no group of a tenant.
    assert "no rule" in run("login", "--no-browser", "--tenant", "a", status=2)
    monkeypatch.setattr(
        typer, "prompt", lambda *_, **__: browse(attempts[-1].address, "eve", home=False)
    )
    assert "the provider knows you, but no rule" in run("login", "--no-browser", status=2)
    assert len([each for each in register.tokens.list().items if each.login]) == 1


@pytest.fixture
def all_logs() -> Iterator[None]:
    """What the API logs is printed, as in a process of its own."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("all_logs")
def test_a_code_is_good_once_and_only_with_its_verifier(
    register: Registry, issuer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    add_tenant(register, "a")
    with served(create_app(register, provider=provider_at(issuer))) as url:
        way = httpx.get(f"{url}/v1/login").json()["provider"]
        bodies = []
        for _ in range(2):
            attempt = LoginAttempt.begin(way, "http://127.0.0.1:5/fuga")
            there = browse(attempt.address, "anna", home=False)
            bodies.append(attempt.exchange_body(there, None))
        stolen = bodies[1] | {"verifier": bodies[0]["verifier"]}

        answers = [
            httpx.post(f"{url}/v1/login", json=each) for each in (bodies[0], *bodies, stolen)
        ]

    assert [each.status_code for each in answers] == [201, 401, 201, 401]
    assert {each.json()["code"] for each in answers if each.status_code == 401} == {"login_refused"}
    logged = capfd.readouterr()
    for body in bodies:
        assert body["code"] not in logged.out + logged.err
        assert body["verifier"] not in logged.out + logged.err


def test_a_client_with_a_secret_proves_itself_to_the_provider(
    register: Registry, issuer: str
) -> None:
    add_tenant(register, "a")
    for secret, status in (("the API's own: 100 %", 201), ("wrong", 401)):
        app = create_app(register, provider=provider_at(issuer, client_secret=secret))
        with served(app) as url:
            way = httpx.get(f"{url}/v1/login").json()["provider"]
            attempt = LoginAttempt.begin(way, "http://127.0.0.1:5/fuga")
            body = attempt.exchange_body(browse(attempt.address, "anna", home=False), None)

            assert httpx.post(f"{url}/v1/login", json=body).status_code == status


def test_what_comes_to_the_port_without_the_state_of_the_login_is_not_its_answer() -> None:
    listener = CallbackListener()
    way = {"authorization_endpoint": "https://sso/?x=1", "client_id": "fuga", "scope": "openid"}
    attempt = LoginAttempt.begin(way, listener.redirect_uri)
    assert parse_qs(urlsplit(attempt.address).query)["x"] == ["1"]

    with listener.listening(attempt.state):
        for query in ("?code=c&state=wrong", "?code=c", "", f"x?code=c&state={attempt.state}"):
            assert httpx.get(listener.redirect_uri + query).status_code == 404
        with pytest.raises(CliError, match="no browser came back within"):
            listener.wait_for_answer(0.01)
        answer = httpx.get(f"{listener.redirect_uri}?error=access_denied&state={attempt.state}")
        assert answer.status_code == 200
        with pytest.raises(CliError, match="access_denied"):
            attempt.exchange_body(listener.wait_for_answer(1), None)
    with pytest.raises(BadInputError, match="not the answer to this login"):
        attempt.exchange_body(f"http://127.0.0.1/fuga?code=c&state={attempt.state}x", None)


@pytest.mark.parametrize("address", ["file:///tmp/run.desktop", "--help", "javascript:x", "https:"])
def test_an_api_opens_nothing_here_but_web_pages(address: str) -> None:
    way = {"authorization_endpoint": address, "client_id": "fuga", "scope": "openid"}

    with pytest.raises(CliError, match="no web address"):
        LoginAttempt.begin(way, "http://127.0.0.1:5/fuga")
