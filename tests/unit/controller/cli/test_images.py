"""`fuga image`: what is sent to the API, and what is said of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cli.main import main
from tests.fakes.http_api import HttpApi, http_api, problem

SHA256 = "ab" * 32
QCOW2 = b"QFI\xfb".ljust(1024, b"\0")
URL = "https://cloud.example.org/images/debian.qcow2"


def an_image(**changes: Any) -> dict[str, Any]:
    return {
        "name": "debian",
        "revision": 2,
        "state": "ready",
        "sha256": SHA256,
        "format": "qcow2",
        "seed_kind": "nocloud",
        "min_memory_mib": 512,
        "size_bytes": 400 << 20,
        "virtual_size_bytes": 2 << 30,
        "source": "debian.qcow2",
        "received_bytes": 0,
        "last_error": None,
        "created_at": "2026-01-01T00:00:00Z",
        "removed_at": None,
        **changes,
    }


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpApi]:
    with http_api() as api:
        monkeypatch.setenv("FUGA_URL", api.url)
        monkeypatch.setenv("FUGA_TOKEN", "secret")
        yield api


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "debian.qcow2"
    path.write_bytes(QCOW2)
    return path


def run(*words: str) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_file_is_sent_as_it_is_with_what_is_said_of_it(
    api: HttpApi, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.on("POST", "/v1/images/upload", an_image(), status=201)

    said = ("--seed", "nocloud", "--min-memory", "512", "--sha256", SHA256.upper())
    assert run("image", "add", "debian", str(file), *said) == 0

    [call] = api.calls("POST", "/v1/images/upload")
    assert call.body == QCOW2
    assert call.query == {
        "name": "debian",
        "format": "qcow2",
        "seed_kind": "nocloud",
        "min_memory_mib": "512",
        "sha256": SHA256,
        "source": "debian.qcow2",
    }
    assert "image debian:2 is ready: 400.0 MiB, disk 2.0 GiB" in capsys.readouterr().out


def test_a_file_that_does_not_begin_like_qcow2_is_raw(api: HttpApi, file: Path) -> None:
    file.write_bytes(b"\0" * 512)
    api.on("POST", "/v1/images/upload", an_image(), status=201)

    assert run("image", "add", "debian", str(file)) == 0

    assert api.calls("POST", "/v1/images/upload")[0].query["format"] == "raw"


@pytest.mark.parametrize(
    "words",
    [
        ("debian",),
        ("debian", "FILE", "--from", URL, "--sha256", SHA256),
        ("debian", "--from", URL),
        ("debian", "/does/not/exist"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    api: HttpApi, file: Path, words: tuple[str, ...]
) -> None:
    given = [str(file) if word == "FILE" else word for word in words]

    assert run("image", "add", *given) == 2

    assert api.asked == []


def test_an_image_to_fetch_is_waited_for(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    under_way = {"state": "importing", "size_bytes": None, "virtual_size_bytes": None}
    api.on("POST", "/v1/images", an_image(**under_way), status=202)
    api.on(
        "GET", "/v1/images/debian:2", an_image(**under_way, received_bytes=100 << 20), an_image()
    )

    assert run("image", "add", "debian", "--from", URL, "--sha256", SHA256) == 0

    [call] = api.calls("POST", "/v1/images")
    assert (call.body["url"], call.body["sha256"]) == (URL, SHA256)
    captured = capsys.readouterr()
    assert "importing, 100.0 MiB so far" in captured.err
    assert "image debian:2 is ready" in captured.out


def test_an_image_that_cannot_be_fetched_says_why(
    api: HttpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.on("POST", "/v1/images", an_image(state="importing"), status=202)
    api.on("GET", "/v1/images/debian:2", an_image(state="failed", last_error="it answers 404"))

    assert run("image", "add", "debian", "--from", URL, "--sha256", SHA256) == 1
    assert "it answers 404" in capsys.readouterr().err

    api.on("GET", "/v1/images/debian:2", an_image(state="importing"))
    assert run("image", "add", "debian", "--from", URL, "--sha256", SHA256, "--timeout", "0") == 3


def test_an_image_is_shown_with_its_copies_and_to_tenants_without(
    api: HttpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = {
        "host": "kvm-1",
        "state": "uploading",
        "uploaded_bytes": 100 << 20,
        "size_bytes": 400 << 20,
        "attempts": 2,
        "disk_gib": 1,
        "last_error": None,
    }
    api.on("GET", "/v1/images/debian", an_image())
    api.on("GET", "/v1/images/debian:2/copies", {"items": [copy]})
    assert run("image", "show", "debian") == 0
    captured = capsys.readouterr().out
    for part in ("debian:2", SHA256, "kvm-1", "uploading", "25 %"):
        assert part in captured

    api.on("GET", "/v1/images/debian", an_image(source=None))
    refused = problem(403, "forbidden", "only an operator may do this")
    api.on("GET", "/v1/images/debian:2/copies", refused, status=403)
    assert run("image", "show", "debian") == 0
    assert "kvm-1" not in capsys.readouterr().out


def test_images_are_listed_and_removed(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.on_list("/v1/images", an_image(), an_image(revision=3, state="failed", last_error="bad"))
    assert run("image", "list") == 0
    captured = capsys.readouterr().out
    for part in ("debian:2", "debian:3", "failed", "bad", "nocloud"):
        assert part in captured

    api.on("DELETE", "/v1/images/debian:3", an_image(revision=3, state="removed"))
    assert run("image", "remove", "debian:3") == 0
    assert "image debian:3 is removed" in capsys.readouterr().out


def test_a_signature_is_sent_with_the_image_and_its_signer_is_shown(
    api: HttpApi, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signature = tmp_path / "debian.qcow2.minisig"
    content = "untrusted comment: x\nRURx\ntrusted comment: für Müller — 版\n"
    signature.write_bytes(content.encode())
    key = "minisign key 0706050403020100 (release.pub)"
    api.on("POST", "/v1/images/upload", an_image(), status=201)
    api.on("GET", "/v1/images/debian", an_image(signed_by=key))
    api.on("GET", "/v1/images/debian:2/copies", {"items": []})

    assert run("image", "add", "debian", file, "--signature", signature) == 0
    assert run("image", "show", "debian") == 0

    [call] = api.calls("POST", "/v1/images/upload")
    assert call.query["signature"] == content
    assert f"signed  by {key}" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 5000])
def test_what_is_no_signature_is_not_sent(
    api: HttpApi, file: Path, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sig").write_bytes(content)

    assert run("image", "add", "debian", file, "--signature", tmp_path / "sig") == 2

    assert "not a signature by minisign or cosign" in capsys.readouterr().err
    assert not api.calls("POST", "/v1/images/upload")


def test_an_image_that_a_worker_has_to_check_is_waited_for(
    api: HttpApi, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.on("POST", "/v1/images/upload", an_image(state="importing"), status=201)
    api.on("GET", "/v1/images/debian:2", an_image())

    assert run("image", "add", "debian", file) == 0

    assert "image debian:2 is ready" in capsys.readouterr().out


def test_a_held_image_is_shown_as_held_and_released(
    api: HttpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "2 hosts, or their pools, stopped answering while it was brought to them: h1, h2"
    held = an_image(held_at="2026-01-01T00:00:00Z", held_reason=reason)
    api.on("GET", "/v1/images", {"items": [held], "next": None})
    api.on("POST", "/v1/images/debian/release", an_image())

    assert run("image", "list") == 0
    assert run("image", "release", "debian") == 0

    out = capsys.readouterr().out
    assert "held" in out
    assert "2 hosts, or their" in out
    assert "image debian:2 is released" in out
