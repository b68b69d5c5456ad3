"""What the web console is built of, and how large it is."""

from __future__ import annotations

import gzip
import json

from controller.rest.pages.web import BUILT
from tests.docs.markdown import ROOT

MOST_KIB = 250


def test_the_first_page_is_small() -> None:
    files = [each.read_bytes() for each in BUILT.rglob("*") if each.is_file()]

    assert 0 < sum(len(gzip.compress(each)) for each in files) <= MOST_KIB * 1024


def test_the_lock_names_no_registry_and_every_package_by_hash() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}

    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if "integrity" not in each] == []
