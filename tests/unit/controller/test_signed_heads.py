"""Who signed a chain of rounds is found out, and each kind of forgery is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controller.session.json_shapes import ProofError
from controller.session.proofs import build_proof_document, parse_document, verify_chain
from controller.session.signed_heads import SignedHeads, read_public_key, verify_heads
from controller.session.witness import WitnessedHeads, witness_head
from registry import ConflictError, Registry, upgrade
from registry.rounds import (
    HeadSigner,
    PrivateKey,
    RoundHoldings,
    SiteKeyError,
    replace_private_key,
    write_private_key,
)
from tests.register import a_commit, add_tenant, take_lease

Document = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


class Site:
    """A register center that signs its rounds."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        url = f"sqlite:///{folder}/fuga.db"
        upgrade(url)
        self.registry = Registry.connect(url)
        for tenant in "ab":
            add_tenant(self.registry, tenant)
        self.lease = take_lease(self.registry)
        self.file = folder / "site-key.pem"
        self.registry.rounds.signer = HeadSigner(self.file)
        self.rounds = 0

    def create_key(self) -> str:
        private = PrivateKey.generate()
        write_private_key(self.file, private)
        self.registry.site_keys.add(private.public_key, instead_of=None, actor="cli")
        return private.public_key

    def rotate_key(self, *, lost: bool = False) -> str:
        old, private = PrivateKey.read(self.file), PrivateKey.generate()
        following = self.file.with_suffix(".new")
        write_private_key(following, private)
        self.registry.site_keys.add(
            private.public_key,
            instead_of=old.public_key,
            endorse=None if lost else lambda first: old.endorse(private.public_key, first),
            actor="cli",
        )
        replace_private_key(self.file, following)
        return private.public_key

    def decide(self, count: int = 1) -> None:
        for _ in range(count):
            self.rounds += 1
            shares = [{"tenant": each, "weight": 1, "before": 0.25, "after": 0.5} for each in "ab"]
            self.registry.rounds.commit_round(
                a_commit(
                    self.lease,
                    slot_start_at=START + timedelta(seconds=self.rounds),
                    shares=shares,
                    holdings=RoundHoldings(
                        resources=("vcpus",), pool=(8,), before=[[2], [2]], after=[[4], [4]]
                    ),
                )
            )

    def saved(self, tenant: str = "a") -> Document:
        """Return what `fuga verify --save` writes, read again."""
        proofs = [
            dataclasses.asdict(each) for each in self.registry.round_proofs.list(tenant).items
        ]
        keys = [dataclasses.asdict(each) for each in self.registry.site_keys.list()]
        document = build_proof_document(tenant, proofs, keys)
        return parse_document(json.dumps(document, default=str).encode())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    yield made
    made.registry.close()


def verified(document: Document, key: str | None = None, tenant: str = "a") -> SignedHeads:
    verify_chain(document, tenant)
    return verify_heads(document, key)


def test_signed_rounds_name_their_signer_and_cover_those_from_before_the_key(site: Site):
    site.decide()
    key = site.create_key()
    site.decide(2)

    saved = site.saved()

    assert [proof["signed"] is None for proof in saved["rounds"]] == [False, False, True]
    for given, trusted in ((key, True), (None, False)):
        heads = verified(saved, given)
        assert (heads.signed_to, heads.signed_by, heads.unsigned) == (3, key, 0)
        assert heads.trusted is trusted


def of(rounds: int, name: str, value: Any) -> Callable[[Document], None]:
    """Return a change of one field of the row, the signature or the round itself."""

    def change(document: Document) -> None:
        proof = document["rounds"][rounds]
        part = next(each for each in (proof["row"], proof["signed"], proof) if name in each)
        part[name] = value

    return change


def strip(document: Document) -> None:
    for proof in document["rounds"]:
        proof["signed"] = None


def reorder(document: Document) -> None:
    rounds = document["rounds"]
    rounds[0], rounds[1] = rounds[1], rounds[0]


def take_signature_of_another_round(document: Document) -> None:
    document["rounds"][0]["signed"] = document["rounds"][1]["signed"]


FORGERIES: dict[str, tuple[Callable[[Document], object], str]] = {
    "changed share": (of(0, "after", 0.75), "not the one that was committed"),
    "changed holding": (of(0, "held", {"before": [2], "after": [6]}), "not the one that was"),
    "another link": (of(0, "link", "0" * 64), "its link is not that of"),
    "another round's signature": (take_signature_of_another_round, "its signature is not that"),
    "a signature of zeros": (of(1, "signature", "0" * 128), "its signature is not that"),
    "a key in another's place": (of(0, "key", "0" * 64), "which is none of the site's"),
    "reordered": (reorder, "not in order"),
    "one left out": (lambda document: document["rounds"].pop(1), "does not follow"),
    "unsigned": (strip, "no round is signed"),
    "newest unsigned": (of(0, "signed", None), "the rounds after 2, up to 3, are not signed"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused(site: Site, name: str):
    key = site.create_key()
    site.decide(3)
    saved = site.saved()
    change, why = FORGERIES[name]

    change(saved)

    with pytest.raises(ProofError, match=why):
        verified(saved, key)


def test_the_leaf_of_another_tenant_is_refused(site: Site):
    key = site.create_key()
    site.decide()
    mine, theirs = site.saved("a"), site.saved("b")
    with pytest.raises(ProofError, match="the rows are those of tenant 'b'"):
        verified(theirs, key)

    for name in ("row", "salt", "path"):
        mine["rounds"][0][name] = theirs["rounds"][0][name]
    mine["rounds"][0]["row"]["tenant"] = "a"

    with pytest.raises(ProofError, match="its row is not the one that was committed"):
        verified(mine, key)


def test_a_chain_that_another_site_signed_is_refused(site: Site, tmp_path: Path):
    """Whoever has no private key of the site can make a whole chain, and sign it by another."""
    key = site.create_key()
    site.decide(2)
    other = Site(tmp_path / "other")
    theirs = other.create_key()
    other.decide(2)
    forged = other.saved()
    other.registry.close()

    assert verified(forged).signed_by == theirs  # by itself it is whole: nobody named a key
    with pytest.raises(ProofError, match="to which no endorsement leads"):
        verified(forged, key)
    forged["keys"] = site.saved()["keys"]
    with pytest.raises(ProofError, match="which is none of the site's"):
        verified(forged, key)
    for proof in forged["rounds"]:
        proof["signed"]["key"] = key
    with pytest.raises(ProofError, match="its signature is not that of key"):
        verified(forged, key)


def test_a_file_cut_at_its_newest_end_is_whole_and_a_witness_or_a_noted_link_knows_more(
    site: Site, tmp_path: Path
):
    key = site.create_key()
    site.decide(3)
    saved = site.saved()
    cut = {**saved, "rounds": saved["rounds"][1:]}
    seen = tmp_path / "seen"
    witness(seen, saved)

    assert verified(cut, key).signed_to == 2
    with pytest.raises(ProofError, match="the known link is not on this chain"):
        verify_chain(cut, "a", saved["rounds"][0]["link"])
    with pytest.raises(ProofError, match="has round 3, and the newest that is shown is 2"):
        witness(seen, cut)
    assert witness(seen, cut, newest=False).not_compared == 1


def test_keys_that_the_one_before_named_are_trusted_each_for_its_rounds(site: Site):
    first = site.create_key()
    site.decide()
    idle = site.rotate_key()
    second = site.rotate_key()
    site.decide(2)

    saved = site.saved()

    assert [(each["first_round"], each["last_round"]) for each in saved["keys"]] == [
        (1, 1),
        (2, 1),
        (2, None),
    ]
    for key in (first, idle, second):
        assert verified(saved, key).signed_by == second
    old = {**saved, "rounds": saved["rounds"][2:]}
    assert verified(old, first).signed_by == first
    with pytest.raises(ProofError, match=f"round 1 is signed by key {first}, to which no"):
        verified(old, second)


def test_a_key_that_nobody_named_is_not_trusted(site: Site):
    first = site.create_key()
    site.decide()
    second = site.rotate_key(lost=True)
    site.decide()
    saved = site.saved()

    with pytest.raises(ProofError, match=f"signed by key {second}, to which no endorsement"):
        verified(saved, first)
    assert verified(saved, second).trusted
    forged = copy.deepcopy(saved)
    forged["keys"][1]["endorsement"] = "0" * 128
    with pytest.raises(ProofError, match="to which no endorsement"):
        verified(forged, first)


def test_an_old_key_signs_no_later_rounds(site: Site, tmp_path: Path):
    """A stolen old private key is of no use for rounds after it was replaced."""
    first = site.create_key()
    site.decide()
    thief = PrivateKey.read(site.file)
    site.rotate_key()
    site.decide()
    saved = site.saved()
    newest = saved["rounds"][0]

    newest["signed"] = dataclasses.asdict(thief.sign_head(2, newest["link"]))

    with pytest.raises(ProofError, match="which signs rounds 1 to 1 alone"):
        verified(saved, first)


def witness(path: Path, document: Document, *, newest: bool = True) -> WitnessedHeads:
    return witness_head(path, document, now=START, newest=newest)


def test_a_witness_appends_heads_and_refuses_a_chain_that_contradicts_one(
    site: Site, tmp_path: Path
):
    site.create_key()
    site.decide(2)
    seen = tmp_path / "seen"

    assert witness(seen, site.saved()) == WitnessedHeads(agree=0, not_compared=0, added=True)
    assert witness(seen, site.saved()) == WitnessedHeads(agree=1, not_compared=0, added=False)
    site.decide()
    assert witness(seen, site.saved()) == WitnessedHeads(agree=1, not_compared=0, added=True)
    newest = site.saved()
    newest["rounds"] = newest["rounds"][:1]
    assert witness(seen, newest).agree == 2  # one by the anchor

    other = Site(tmp_path / "other")
    other.decide(4)
    before = seen.read_bytes()
    with pytest.raises(ProofError, match="has another link of round 2"):
        witness(seen, other.saved())
    other.registry.close()
    assert seen.read_bytes() == before
    line = {**json.loads(before.splitlines()[0]), "link": "0" * 64}
    seen.write_bytes(before + json.dumps(line).encode() + b"\n")
    with pytest.raises(ProofError, match="line 3: a second link of round 2"):
        witness(seen, site.saved())
    seen.write_bytes(before[:-5])
    with pytest.raises(ProofError, match="its last line is not whole"):
        witness(seen, site.saved())


def spoil_by_mode(file: Path) -> None:
    file.chmod(0o640)


def spoil_by_content(file: Path) -> None:
    file.write_text("no key")


def spoil_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def spoil_by_another_key(file: Path) -> None:
    file.unlink()
    write_private_key(file, PrivateKey.generate())


@pytest.mark.parametrize(
    "spoil", [Path.unlink, spoil_by_mode, spoil_by_content, spoil_by_pipe, spoil_by_another_key]
)
def test_a_round_goes_on_unsigned_without_a_usable_key_and_is_signed_with_it_again(
    site: Site, spoil: Callable[[Path], None], tmp_path: Path
):
    key = site.create_key()
    site.decide()
    kept = tmp_path / "kept"
    kept.write_bytes(site.file.read_bytes())
    kept.chmod(0o600)

    spoil(site.file)
    site.decide()
    state = site.registry.site_keys.signing_state()
    replace_private_key(site.file, kept)
    site.decide()

    assert (state.last_signed, state.last_round, state.unsigned) == (1, 2, 1)
    signed = [proof["signed"] is not None for proof in site.saved()["rounds"]]
    assert signed == [True, False, True]
    assert verified(site.saved(), key).signed_to == 3
    assert site.registry.site_keys.signing_state().unsigned == 0


def test_a_key_is_replaced_by_those_alone_who_know_the_present_one(site: Site):
    key = site.create_key()
    other = PrivateKey.generate().public_key

    for instead_of in (None, other):
        with pytest.raises(ConflictError, match="somebody changed it"):
            site.registry.site_keys.add(other, instead_of=instead_of, actor="cli")
    with pytest.raises(ConflictError, match="is or was one of this site"):
        site.registry.site_keys.add(key, instead_of=key, actor="cli")
    with pytest.raises(SiteKeyError, match="exists already"):
        write_private_key(site.file, PrivateKey.generate())
    assert site.file.stat().st_mode & 0o777 == 0o600


def test_a_public_key_is_given_in_hexadecimal_in_a_file_or_in_pem(tmp_path: Path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = PrivateKey.generate().public_key
    in_hex, in_pem, other = (tmp_path / name for name in ("hex", "pem", "other"))
    in_hex.write_text(f"{key}\n")
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
    in_pem.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    other.write_text("key")

    assert {read_public_key(str(each)) for each in (key, in_hex, in_pem)} == {key}
    with pytest.raises(ProofError, match="no Ed25519 public key"):
        read_public_key(str(other))
    with pytest.raises(FileNotFoundError):
        read_public_key("nowhere")
