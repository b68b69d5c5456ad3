"""What the web console is built of, and how large it is."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from controller.rest.pages.web import BUILT
from tests.docs.markdown import ROOT

MOST_KIB = 250


def test_the_first_page_is_small_and_leaves_the_map_and_the_terminal_for_later() -> None:
    page = (BUILT / "index.html").read_text()
    named = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    first = [page.encode(), *((BUILT / each).read_bytes() for each in named)]
    later = {each.name for each in BUILT.glob("assets/*.js")} - {Path(each).name for each in named}

    assert any(each.endswith(".js") for each in named)
    assert any(each.endswith(".css") for each in named)
    assert sum(len(gzip.compress(each)) for each in first) <= MOST_KIB * 1024
    assert {"map", "terminal"} <= {each.partition("-")[0] for each in later}


def test_the_lock_names_no_registry_and_every_package_by_hash() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}

    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if "integrity" not in each] == []
