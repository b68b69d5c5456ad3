from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.session.completion import complete_host
from controller.session.credentials import DEFAULT_URL, Credentials, find_connection
from controller.terminal.errors import BadInputError

URL = "http://127.0.0.1:9000"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    saved = Credentials(url=URL, operator="op", tenants={"a": "token-of-a"})
    saved.save(tmp_path / "credentials.json")
    return {"FUGA_STATE_DIR": str(tmp_path)}


def test_the_state_folder_tells_address_and_operators_token(environ: dict[str, str]) -> None:
    found = find_connection(environ)

    assert (found.url, found.token) == (URL, "op")


def test_the_environment_goes_before_the_state_folder(environ: dict[str, str]) -> None:
    environ |= {"FUGA_URL": "https://fuga.example.org/", "FUGA_TOKEN": "mine"}

    found = find_connection(environ)

    assert (found.url, found.token) == ("https://fuga.example.org", "mine")


def test_an_option_goes_before_the_environment(environ: dict[str, str]) -> None:
    environ |= {"FUGA_URL": "http://other:1", "FUGA_TOKEN": "mine"}

    found = find_connection(environ, url=f"{URL}/", tenant="a")

    assert (found.url, found.token) == (URL, "token-of-a")


def test_a_token_of_the_state_folder_goes_to_its_own_address_alone(environ: dict[str, str]) -> None:
    found = find_connection(environ, url="http://other:1")
    with pytest.raises(BadInputError, match=f"is for {URL}, and is not sent to http://other:1"):
        find_connection(environ, url="http://other:1", tenant="a")

    assert (found.url, found.token) == ("http://other:1", None)


def test_the_settings_file_is_heard(tmp_path: Path, environ: dict[str, str]) -> None:
    config = tmp_path / "fuga.toml"
    config.write_text(f'state_dir = "{environ["FUGA_STATE_DIR"]}"\ntoken = "from-the-file"\n')

    found = find_connection({"FUGA_CONFIG": str(config)})

    assert (found.url, found.token) == (URL, "from-the-file")


def test_a_tenant_without_a_token_is_told_how_to_get_one(environ: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match=r"'z' \(known: a\)"):
        find_connection(environ, tenant="z")


def test_without_anything_the_default_address_is_asked(tmp_path: Path) -> None:
    found = find_connection({"FUGA_STATE_DIR": str(tmp_path)})

    assert (found.url, found.token) == (DEFAULT_URL, None)


def test_an_address_without_a_scheme_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match="http://"):
        find_connection(environ, url="localhost:8732")


def test_the_file_is_readable_by_its_owner_alone_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text("{}")
    path.chmod(0o644)

    Credentials(url=URL, operator="op").save(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["credentials.json"]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text("[1")

    with pytest.raises(BadInputError, match=r"credentials\.json is not a credentials file"):
        find_connection({"FUGA_STATE_DIR": str(tmp_path)})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_credentials_of_another_user_lead_no_token_to_its_api(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path / "credentials.json", 65534, 65534)
    requested: list[object] = []
    monkeypatch.setattr(
        "controller.client.http.Client", lambda *words, **_: requested.append(words)
    )

    with pytest.raises(BadInputError, match="belongs to another user"):
        find_connection(environ | {"FUGA_TOKEN": "mine"})
    with pytest.raises(BadInputError, match="belongs to another user"):
        find_connection(environ, tenant="a")

    for name, value in (environ | {"FUGA_TOKEN": "mine"}).items():
        monkeypatch.setenv(name, value)
    assert (complete_host("h"), requested) == ([], [])


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_credentials_that_others_may_write_are_not_read(
    tmp_path: Path, environ: dict[str, str], mode: int
) -> None:
    (tmp_path / "credentials.json").chmod(mode)

    with pytest.raises(BadInputError, match="is writable by others"):
        find_connection(environ | {"FUGA_TOKEN": "mine"})


def test_a_file_whose_words_would_not_count_is_not_read(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "credentials.json").chmod(0o666)

    found = find_connection(environ | {"FUGA_TOKEN": "mine", "FUGA_URL": "http://own:1"})

    assert (found.url, found.token) == ("http://own:1", "mine")
