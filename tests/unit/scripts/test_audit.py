"""`make audit`: what of locked packages is known, permitted, and named in the bill of materials."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "some.lock"
    file.write_text(
        "alembic==1.20.1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
        "Some_Thing==2.0 ; python_full_version < '3.0' \\\n    --hash=sha256:02\n"
        "urllib3==1.22 \\\n    --hash=sha256:03\n"
    )
    return file


def osv(name: str, **affected: Any) -> dict[str, Any]:
    return {
        "id": f"PYSEC-{name}", "aliases": ["CVE-2030-1"], "modified": "2030-01-02T00:00:00Z",
        "summary": "It leaks.",
        "affected": [{"package": {"ecosystem": "PyPI", "name": name}} | affected],
    }  # fmt: skip


def test_every_locked_version_is_read_with_its_marker(audit: ModuleType, lock: Path) -> None:
    found = audit.locked_in(lock)

    assert [(each.name, each.version, each.applies_here) for each in found] == [
        ("alembic", "1.20.1", True), ("some-thing", "2.0", False), ("urllib3", "1.22", True),
    ]  # fmt: skip
    real = audit.locked_in(*(ROOT / "requirements").glob("*.lock"))
    assert {"sqlalchemy", "pip", "pytest", "cyclonedx-bom"} <= {each.name for each in real}


def test_a_line_that_is_not_understood_is_not_passed_over(audit: ModuleType, lock: Path) -> None:
    lock.write_text("alembic @ somewhere\n")

    with pytest.raises(SystemExit, match="not understood: 'alembic @ somewhere'"):
        audit.locked_in(lock)


@pytest.mark.parametrize(
    ("affected", "concerned"),
    [
        ({"versions": ["1.21", "1.22"]}, True),
        ({"versions": ["1.21"]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}, True),
        (
            {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.23"}]}]},
            True,
        ),
        (
            {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.22"}]}]},
            False,
        ),
        (
            {
                "ranges": [
                    {
                        "type": "ECOSYSTEM",
                        "events": [
                            {"introduced": "1.0"}, {"fixed": "1.1"},
                            {"introduced": "1.20"}, {"last_affected": "1.22"},
                        ],
                    }
                ]
            },
            True,
        ),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)  # fmt: skip
def test_an_export_of_osvs_says_which_versions_are_concerned(
    audit: ModuleType, lock: Path, tmp_path: Path, affected: dict[str, Any], concerned: bool
) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.json", json.dumps(osv("urllib3", **affected)))
        archive.writestr("b.json", json.dumps(osv("alembic") | {"withdrawn": "2030-01-01"}))

    advisories = audit.advisories_in(tmp_path / "all.zip")
    found = audit.findings(audit.locked_in(lock), advisories)

    assert advisories.until == datetime(2030, 1, 2, tzinfo=UTC)
    assert [(each.package.name, each.ids) for each in found] == (
        [("urllib3", ("PYSEC-urllib3", "CVE-2030-1"))] if concerned else []
    )


def test_what_is_found_fails_unless_it_is_accepted_with_a_reason(
    audit: ModuleType, lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(osv("urllib3", versions=["1.22"])))
    advisories = audit.advisories_in(tmp_path)
    packages = audit.locked_in(lock)
    accepted = [
        {"package": "urllib3", "id": "CVE-2030-1", "reason": "never called"},
        {"package": "alembic", "id": "CVE-2029-9", "reason": "long ago"},
    ]

    assert not audit.judge(advisories, packages, [])
    refused = capsys.readouterr().out
    assert audit.judge(advisories, packages, accepted)
    captured = capsys.readouterr().out

    assert "until 2030-01-02" in refused
    assert "FOUND: urllib3 1.22: PYSEC-urllib3, CVE-2030-1: It leaks." in refused
    assert "because never called" in captured
    assert "no longer found, and still accepted" in captured
    assert "alembic CVE-2029-9" in captured


@pytest.mark.parametrize(
    ("said", "well"),
    [
        ("MIT", True), ("MIT AND BSD-3-Clause", True), ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False), ("GPL-3.0-only", False), ("(MIT)", False),
    ],
)  # fmt: skip
def test_all_that_and_joins_and_one_of_what_or_joins_has_to_be_permitted(
    audit: ModuleType, said: str, well: bool
) -> None:
    assert audit.permitted(said, ["MIT", "BSD-3-Clause"]) is well


def test_the_most_exact_word_of_a_package_on_its_licence_counts(audit: ModuleType) -> None:
    said = Message()
    assert audit.licences_of(said) == set()
    said["License"] = "Some text\nof many lines"
    assert audit.licences_of(said) == {"Some text"}
    said["Classifier"] = "License :: OSI Approved"
    said["Classifier"] = "License :: OSI Approved :: MIT License"
    assert audit.licences_of(said) == {"MIT License"}
    said["License-Expression"] = "MIT"
    assert audit.licences_of(said) == {"MIT"}


def test_a_package_whose_licence_is_unknown_or_not_permitted_is_named(
    audit: ModuleType, lock: Path, tmp_path: Path
) -> None:
    for name, words in (("alembic", "License-Expression: GPL-3.0-only\n"), ("urllib3", "")):
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1\n{words}"
        )
    config: dict[str, Any] = {"allowed": ["MIT"], "packages": {}}
    packages = audit.locked_in(lock)

    problems = audit.licence_problems(packages, tmp_path, config)
    config["packages"] = {"urllib3": "MIT", "alembic": "MIT"}
    settled = audit.licence_problems(packages, tmp_path, config)

    assert problems == ["alembic 1.20.1: GPL-3.0-only", "urllib3 1.22: says no licence"]
    assert settled == []


def test_a_bill_that_is_not_the_lock_file_is_refused(audit: ModuleType) -> None:
    lock = ROOT / "requirements" / "runtime.lock"
    components = [{"name": it.name, "version": it.version} for it in audit.locked_in(lock)]
    bill = {"metadata": {"component": {"name": "fuga-controller"}}, "components": components}

    whole = audit.bill_problems(bill, lock)
    dropped, *kept = components
    other = bill | {"components": [*kept, {"name": "left-pad", "version": "1.0"}]}
    changed = audit.bill_problems(other, lock)

    assert whole == []
    assert f"{dropped['name']} {dropped['version']} is locked, not in it" in changed
    assert "left-pad 1.0 is in it, not locked" in changed
