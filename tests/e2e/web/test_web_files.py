"""What the web console is built of, and how large it is."""

from __future__ import annotations

import gzip
import json

from controller.rest.pages.web import BUILT
from tests.docs.markdown import ROOT

MOST_KIB = 250


def test_the_first_page_is_small_and_views_of_operators_come_later() -> None:
    page = (BUILT / "index.html").read_text()
    files = [each for each in BUILT.rglob("*") if each.is_file()]
    first = [each for each in files if each.name == "index.html" or each.name in page]
    later = {each.name for each in files if each not in first}

    assert len(first) >= 3  # the page, its script, its style
    assert sum(len(gzip.compress(each.read_bytes())) for each in first) <= MOST_KIB * 1024
    assert any(name.startswith("map-") for name in later)


def test_the_lock_names_no_registry_and_every_package_by_hash() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}

    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if "integrity" not in each] == []
