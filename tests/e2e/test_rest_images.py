"""An operator adds images; tenants ask for VMs of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.rest import create_app
from registry import ImageStore
from tests.e2e.conftest import Api
from tests.http_client import a_client
from tests.problems import places, the_problem
from tests.register import add_vm_type

RAW = b"a disk".ljust(1024, b"\0")
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def images(api: Api, folder: Path) -> Api:
    """The API with a store for images of at most 4 KiB."""
    return _with_store(api, folder)


def _with_store(api: Api, folder: Path, default_image: str | None = None) -> Api:
    store = ImageStore(folder, max_bytes=4096)
    app = create_app(api.registry, image_store=store, default_image=default_image)
    tokens = {"operator": None, "tenant_a": "a", "tenant_b": "b"}
    clients = {
        name: a_client(
            app,
            token=api.registry.tokens.create(
                "operator" if tenant is None else "tenant", tenant, f"{name}-images", actor="cli"
            )[1],
        )
        for name, tenant in tokens.items()
    }
    return replace(api, app=app, stranger=a_client(app), **clients)


def upload(client: httpx.Client, content: bytes = RAW, **query: Any) -> httpx.Response:
    said = {"name": "debian", "format": "raw"} | query
    return client.post("/v1/images/upload", params=said, content=content, headers=BYTES)


def stored(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_an_image_is_added_by_its_content_and_everybody_sees_it(images: Api, folder: Path):
    made = upload(images.operator, seed_kind="nocloud", min_memory_mib=512, source="debian.raw")

    assert made.status_code == 201, made.text
    told = made.json()
    assert told["sha256"] == hashlib.sha256(RAW).hexdigest()
    assert (told["name"], told["revision"], told["state"]) == ("debian", 1, "ready")
    assert (told["size_bytes"], told["virtual_size_bytes"]) == (1024, 1024)
    assert (told["seed_kind"], told["min_memory_mib"]) == ("nocloud", 512)
    assert stored(folder) == [f"{told['id']}.raw"]
    assert images.operator.get("/v1/images/debian:1").json() == told
    assert images.operator.get("/v1/images/debian/copies").json() == {"items": []}
    seen = images.tenant_a.get("/v1/images/debian").json()
    assert seen == told | {"source": None}
    assert images.tenant_a.get("/v1/images").json()["items"] == [seen]


def test_the_same_again_is_the_same_and_another_content_is_the_next_revision(
    images: Api, folder: Path
):
    first = upload(images.operator).json()
    (folder / f"{first['id']}.raw").unlink()

    assert upload(images.operator).json() == first
    assert stored(folder) == [f"{first['id']}.raw"]
    assert upload(images.operator, b"\1" * 512).json()["revision"] == 2
    assert len(stored(folder)) == 2


@pytest.mark.parametrize(
    ("content", "query", "status", "code"),
    [
        (RAW, {"format": "qcow2"}, 422, "image_refused"),
        (RAW[:-1], {}, 422, "image_refused"),
        (RAW, {"sha256": "0" * 64}, 422, "image_refused"),
        (b"", {}, 422, "image_refused"),
        (b"\0" * 8192, {}, 413, "too_large"),
        (RAW, {"format": "vmdk"}, 422, "invalid"),
        (RAW, {"name": "UPPER"}, 422, "invalid"),
        (RAW, {"seed_kind": "smoke"}, 422, "invalid"),
        (RAW, {"min_memory_mib": "-1"}, 422, "invalid"),
        (RAW, {"unicorns": "1"}, 422, "invalid"),
    ],
)
def test_what_must_not_become_an_image_leaves_nothing(
    images: Api, folder: Path, content: bytes, query: dict[str, str], status: int, code: str
):
    the_problem(upload(images.operator, content, **query), status, code)

    assert stored(folder) == []
    assert images.operator.get("/v1/images").json()["items"] == []


def test_only_operators_add_and_remove_images_and_see_where_they_are(images: Api, folder: Path):
    the_problem(upload(images.tenant_a), 403, "forbidden")
    the_problem(upload(images.stranger), 401, "unauthorized")
    assert stored(folder) == []

    upload(images.operator)

    the_problem(images.tenant_a.get("/v1/images/debian/copies"), 403, "forbidden")
    the_problem(images.tenant_a.delete("/v1/images/debian"), 403, "forbidden")


def test_content_is_sent_as_bytes_alone(images: Api):
    answer = images.operator.post(
        "/v1/images/upload", params={"name": "debian", "format": "raw"}, json={"name": "debian"}
    )

    the_problem(answer, 415, "unsupported_media_type")


def test_an_api_without_a_store_says_so(api: Api):
    the_problem(upload(api.operator), 507, "image_store_failed")


def test_a_request_names_an_image_and_is_told_which_it_got(images: Api):
    upload(images.operator)

    asked = {"vm_type": "small", "count": 2, "image": "debian"}
    made = images.tenant_a.post("/v1/requests", json=asked)

    assert made.status_code == 201, made.text
    assert made.json()["image"] == "debian:1"
    assert images.tenant_a.get("/v1/requests").json()["items"][0]["image"] == "debian:1"


def test_an_image_that_does_not_fit_the_type_is_refused_with_both_numbers(images: Api):
    upload(images.operator, min_memory_mib=4096)
    add_vm_type(images.registry, "diskless", disk_gib=0)

    for vm_type, numbers in (("small", ("4096", "3072")), ("diskless", ("0.01 GiB", "0 GiB"))):
        asked = {"vm_type": vm_type, "count": 1, "image": "debian"}
        problem = the_problem(images.tenant_a.post("/v1/requests", json=asked), 422, "invalid")
        assert places(problem) == ["#/image"]
        for number in numbers:
            assert number in problem["detail"]


@pytest.mark.parametrize("image", ["nonesuch", "debian:2", "debian:", "../x", ""])
def test_an_image_that_is_not_on_offer_is_pointed_at(images: Api, image: str):
    upload(images.operator)

    asked = {"vm_type": "small", "count": 1, "image": image}
    problem = the_problem(images.tenant_a.post("/v1/requests", json=asked), 422, "invalid")

    assert places(problem) == ["#/image"]


def test_a_request_that_names_none_gets_the_default(api: Api, folder: Path):
    told = _with_store(api, folder, "debian")
    upload(told.operator)
    upload(told.operator, name="other")

    def image_of(**fields: str) -> str:
        made = told.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1, **fields})
        return str(made.json()["image"])

    assert image_of() == "debian:1"
    assert image_of(image="other") == "other:1"


def test_an_image_is_removed_once_nothing_needs_it(images: Api, folder: Path):
    upload(images.operator)
    asked = {"vm_type": "small", "count": 1, "image": "debian"}
    request = images.tenant_a.post("/v1/requests", json=asked).json()["id"]
    the_problem(images.operator.delete("/v1/images/debian"), 409, "conflict")
    assert len(stored(folder)) == 1

    images.tenant_a.delete(f"/v1/requests/{request}")
    removed = images.operator.delete("/v1/images/debian")

    assert removed.status_code == 200, removed.text
    assert removed.json()["state"] == "removed"
    assert stored(folder) == []
    the_problem(images.tenant_a.get("/v1/images/debian"), 404, "not_found")
    gone = images.operator.get("/v1/images", params={"include_removed": "true"}).json()["items"]
    assert [each["state"] for each in gone] == ["removed"]
    assert images.operator.delete("/v1/images/debian:1").json()["state"] == "removed"


FETCH = {
    "name": "debian",
    "url": "https://cloud.example.org/images/debian.qcow2",
    "sha256": "0" * 64,
}


def test_an_operator_has_an_image_fetched_from_where_that_is_allowed(images: Api, api: Api):
    app = create_app(api.registry, image_urls={"https://cloud.example.org/images/"})
    operator = a_client(app, token=_operator(api))

    made = operator.post("/v1/images", json=FETCH)

    assert made.status_code == 202, made.text
    assert (made.json()["state"], made.json()["source"]) == ("importing", FETCH["url"])
    asked = {"vm_type": "small", "count": 1, "image": "debian"}
    problem = the_problem(api.tenant_a.post("/v1/requests", json=asked), 422, "invalid")
    assert "importing" in problem["detail"]
    the_problem(api.tenant_a.post("/v1/images", json=FETCH), 403, "forbidden")
    elsewhere = FETCH | {"url": "https://evil.example.org/images/debian.qcow2"}
    refused = the_problem(operator.post("/v1/images", json=elsewhere), 422, "url_refused")
    assert places(refused) == ["#/url"]
    the_problem(images.operator.post("/v1/images", json=FETCH), 422, "url_refused")


def _operator(api: Api) -> str:
    return api.registry.tokens.create("operator", None, "fetcher", actor="cli")[1]
