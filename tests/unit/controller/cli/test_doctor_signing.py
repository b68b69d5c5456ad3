"""What the doctor says of signatures: whether the newest rounds have one, and why not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from controller.cli.doctor.signing import key_findings
from registry.rounds import PrivateKey, SigningState, SiteKey, write_private_key


def a_state(public_key: str | None, *, signed: int = 3, last: int = 3) -> SigningState:
    current = None
    if public_key is not None:
        current = SiteKey(
            public_key=public_key,
            first_round=1,
            last_round=None,
            endorsement=None,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
    return SigningState(
        current=current, last_round=last, last_signed=signed, unsigned=last - signed
    )


def levels(state: SigningState, file: Path) -> list[tuple[str, str]]:
    return [(each.level, each.message) for each in key_findings(state, file)]


def test_a_site_without_a_key_gets_a_note(tmp_path: Path):
    [(level, message)] = levels(a_state(None), tmp_path / "key")

    assert (level, "`fuga db key create`" in message) == ("note", True)


def test_rounds_that_are_signed_are_well_also_on_a_machine_without_the_file(tmp_path: Path):
    file, key = tmp_path / "key", PrivateKey.generate()

    assert [level for level, _ in levels(a_state(key.public_key), file)] == ["ok", "note"]
    write_private_key(file, key)
    assert [level for level, _ in levels(a_state(key.public_key), file)] == ["ok", "ok"]
    file.chmod(0o644)
    assert [level for level, _ in levels(a_state(key.public_key), file)] == ["ok", "WRONG"]


@pytest.mark.parametrize("signed", [0, 2])
def test_newest_rounds_without_a_signature_are_wrong_and_a_missing_file_is_named(
    tmp_path: Path, signed: int
):
    """As after a restore from a backup, which has no private key."""
    found = levels(a_state("a" * 64, signed=signed), tmp_path / "key")

    assert [level for level, _ in found] == ["WRONG", "WRONG"]
    assert f"the newest {3 - signed} rounds are not signed" in found[0][1]
    assert "if it is lost, `fuga db key rotate --lost`" in found[1][1]


def test_the_file_of_another_key_is_wrong(tmp_path: Path):
    write_private_key(tmp_path / "key", PrivateKey.generate())

    assert [level for level, _ in levels(a_state("a" * 64), tmp_path / "key")] == ["ok", "WRONG"]
