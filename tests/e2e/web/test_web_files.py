"""What the web console is built of, and how large it is."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from controller.rest.pages.web import BUILT, WEB_PATH, web_pages
from tests.docs.markdown import ROOT
from tests.servers.http_client import a_client

MAX_KIB = 250


def test_the_first_page_is_small_and_leaves_the_map_and_the_terminal_for_later() -> None:
    page = (BUILT / "index.html").read_text()
    named = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    first = [page.encode(), *((BUILT / each).read_bytes() for each in named)]
    later = {each.name for each in BUILT.glob("assets/*.js")} - {Path(each).name for each in named}

    assert any(each.endswith(".js") for each in named)
    assert any(each.endswith(".css") for each in named)
    assert sum(len(gzip.compress(each)) for each in first) <= MAX_KIB * 1024
    assert {"map", "terminal"} <= {each.partition("-")[0] for each in later}


def test_the_lock_names_no_registry_and_every_package_by_hash() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}

    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if "integrity" not in each] == []


def test_an_api_keeps_serving_its_page_while_another_is_built(tmp_path: Path) -> None:
    built = tmp_path / "web_files"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text('<script src="./assets/index-1.js"></script>')
    (built / "assets" / "index-1.js").write_text("first();")
    pages = web_pages(built)

    (built / "assets" / "index-1.js").unlink()
    (built / "assets" / "index-2.js").write_text("second();")
    (built / "index.html").write_text('<script src="./assets/index-2.js"></script>')

    app = Starlette(routes=[Route(path, page.answer) for path, page in pages.items()])
    with a_client(app) as client:
        assert "index-1.js" in client.get(WEB_PATH).text
        assert client.get(f"{WEB_PATH}assets/index-1.js").text == "first();"
        assert client.get(f"{WEB_PATH}assets/index-2.js").status_code == 404


def test_an_api_that_starts_while_the_page_is_built_serves_none(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1.js").write_text("first();")

    assert web_pages(tmp_path) == {}
