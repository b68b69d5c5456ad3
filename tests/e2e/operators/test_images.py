"""An operator adds images; tenants ask for VMs of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest

from controller.client.connection import ApiConnection
from controller.client.errors import ApiProblemError
from controller.client.http import Client
from controller.rest import create_app
from registry.images import ImageStore
from tests.e2e.conftest import Api
from tests.integration.registry.test_images import add_image
from tests.problems import places, the_problem
from tests.register import add_host, add_request, add_vm_type, place
from tests.servers.http_client import a_client
from tests.servers.serving import served
from tests.unit.registry.test_registry_image_signatures import KEYS, minisig
from workers import imports
from workers.context import TaskOutcome, WorkerContext
from workers.host_limits import HostLimits

RAW = b"a disk".ljust(1024, b"\0")
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def images(api: Api, folder: Path) -> Api:
    """The API with a store for images of at most 4 KiB."""
    return _with_store(api, folder)


def _with_store(
    api: Api, folder: Path, default_image: str | None = None, store: ImageStore | None = None
) -> Api:
    store = store if store is not None else ImageStore(folder, max_bytes=4096)
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


def upload(
    client: httpx.Client, content: bytes | Iterable[bytes] = RAW, **query: Any
) -> httpx.Response:
    said = {"name": "debian", "format": "raw"} | query
    return client.post("/v1/images/upload", params=said, content=content, headers=BYTES)


def stored(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_an_image_is_added_by_its_content_and_everybody_sees_it(images: Api, folder: Path):
    made = upload(images.operator, seed_kind="nocloud", min_memory_mib=512, source="débian 版.raw")

    assert made.status_code == 201, made.text
    body = made.json()
    assert body["sha256"] == hashlib.sha256(RAW).hexdigest()
    assert (body["name"], body["revision"], body["state"]) == ("debian", 1, "ready")
    assert (body["size_bytes"], body["virtual_size_bytes"]) == (1024, 1024)
    assert (body["seed_kind"], body["min_memory_mib"]) == ("nocloud", 512)
    assert stored(folder) == [f"{body['id']}.raw"]
    assert images.operator.get("/v1/images/debian:1").json() == body
    assert images.operator.get("/v1/images/debian/copies").json() == {"items": []}
    seen = images.tenant_a.get("/v1/images/debian").json()
    assert seen == body | {"source": None}
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


def test_a_repeated_upload_does_not_come_after_one_that_was_made_meanwhile(
    images: Api, folder: Path
):
    def send(content: bytes, key: str) -> httpx.Response:
        query = {"name": "debian", "format": "raw"}
        headers = BYTES | {"Idempotency-Key": key}
        return images.operator.post(
            "/v1/images/upload", params=query, content=content, headers=headers
        )

    first = send(RAW, "x").json()
    second = send(b"\1" * 512, "y").json()
    again = send(RAW, "x")

    assert (again.json(), again.headers["idempotency-replayed"]) == (first, "true")
    assert images.operator.get("/v1/images/debian").json() == second
    assert stored(folder) == sorted(f"{each['id']}.raw" for each in (first, second))
    the_problem(send(b"\2" * 512, "x"), 422, "idempotency_key_reused")
    images.operator.delete("/v1/images/debian:1")
    (folder / f"{first['id']}.raw").unlink(missing_ok=True)
    assert send(RAW, "x").json() == first
    assert stored(folder) == [f"{second['id']}.raw"]


@pytest.mark.parametrize(
    ("content", "query", "status", "code"),
    [
        (RAW, {"format": "qcow2"}, 422, "image_refused"),
        (RAW[:-1], {}, 422, "image_refused"),
        (RAW, {"sha256": "0" * 64}, 422, "image_refused"),
        (b"", {}, 422, "image_refused"),
        (b"\0" * 8192, {}, 413, "too_large"),
        ([b"\0" * 4096, b"\0" * 4096], {}, 413, "too_large"),  # in chunks, without a length
        (RAW, {"format": "vmdk"}, 422, "invalid"),
        (RAW, {"name": "UPPER"}, 422, "invalid"),
        (RAW, {"seed_kind": "smoke"}, 422, "invalid"),
        (RAW, {"min_memory_mib": "-1"}, 422, "invalid"),
        (RAW, {"unicorns": "1"}, 422, "invalid"),
    ],
)
def test_what_must_not_become_an_image_leaves_nothing(
    images: Api,
    folder: Path,
    content: bytes | list[bytes],
    query: dict[str, str],
    status: int,
    code: str,
):
    the_problem(upload(images.operator, content, **query), status, code)

    assert stored(folder) == []
    assert images.operator.get("/v1/images").json()["items"] == []


@pytest.mark.parametrize(
    ("query", "start", "announced", "status", "words"),
    [
        ({}, b"", 200 << 30, 413, "214748364800 bytes, and the limit is 107374182400"),
        ({"format": "qcow2"}, b"QFI\xfb", 200 << 30, 413, "FUGA_IMAGE_MAX_GIB"),
        ({}, b"", 3 << 30, 507, "needs 3.00 GiB"),
        ({"format": "qcow2"}, b"", 3 << 30, 507, "FUGA_IMAGE_MARGIN_GIB"),
        ({}, b"", 1025, 422, "whole sectors"),
        ({}, b"KDMV", 1 << 20, 422, "VMDK"),
        ({}, b"QFI\xfb", 1 << 20, 422, "qcow2"),
        ({"format": "qcow2"}, b"conectix", 1 << 20, 422, "does not begin like one"),
        ({"format": "qcow2"}, b"QFI\xfb\0\0\0\x09", 1 << 20, 422, "version is 9"),
    ],
)
def test_an_upload_is_judged_by_its_length_and_its_first_bytes(
    api: Api,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    query: dict[str, str],
    start: bytes,
    announced: int,
    status: int,
    words: str,
):
    free = SimpleNamespace(f_bavail=3 << 18, f_frsize=4096)  # 3 GiB, of which one stays
    monkeypatch.setattr(os, "fstatvfs", lambda _: free)
    images = _with_store(
        api, folder, store=ImageStore(folder, max_bytes=100 << 30, margin_bytes=1 << 30)
    )

    answer = images.operator.post(
        "/v1/images/upload",
        params={"name": "debian", "format": "raw"} | query,
        content=iter([start.ljust(1 << 20, b"\1")]),
        headers=BYTES | {"Content-Length": str(announced)},
    )

    code = {413: "too_large", 422: "image_refused", 507: "image_store_failed"}[status]
    assert words in the_problem(answer, status, code)["detail"]
    assert stored(folder) == []


def test_a_sparse_file_beyond_the_limit_ends_after_its_first_pieces(
    api: Api, folder: Path, tmp_path: Path
):
    images = _with_store(api, folder, store=ImageStore(folder, max_bytes=100 << 30))
    file, sent = tmp_path / "sparse.raw", [0]
    file.touch()
    os.truncate(file, 200 << 30)
    query = {"name": "debian", "format": "raw"}

    with (
        served(images.app) as url,
        closing(Client(ApiConnection(url=url, token=_operator(api)))) as client,
    ):
        for _ in range(5):  # a connection that closes must not swallow the answer
            with file.open("rb") as content, pytest.raises(ApiProblemError, match="100 GiB"):
                client.upload(
                    "images/upload", content, query=query, report=lambda came, _: sent.append(came)
                )

    assert max(sent) < 64 << 20
    assert stored(folder) == []


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

    body = {"vm_type": "small", "count": 2, "image": "debian"}
    made = images.tenant_a.post("/v1/requests", json=body)

    assert made.status_code == 201, made.text
    assert made.json()["image"] == "debian:1"
    assert images.tenant_a.get("/v1/requests").json()["items"][0]["image"] == "debian:1"


def test_an_image_that_does_not_fit_the_type_is_refused_with_both_numbers(images: Api):
    upload(images.operator, min_memory_mib=4096)
    add_vm_type(images.registry, "diskless", disk_gib=0)

    for vm_type, numbers in (("small", ("4096", "3072")), ("diskless", ("0.01 GiB", "0 GiB"))):
        body = {"vm_type": vm_type, "count": 1, "image": "debian"}
        problem = the_problem(images.tenant_a.post("/v1/requests", json=body), 422, "invalid")
        assert places(problem) == ["#/image"]
        for number in numbers:
            assert number in problem["detail"]


@pytest.mark.parametrize("image", ["nonesuch", "debian:2", "debian:", "../x", ""])
def test_an_image_that_is_not_on_offer_is_pointed_at(images: Api, image: str):
    upload(images.operator)

    body = {"vm_type": "small", "count": 1, "image": image}
    problem = the_problem(images.tenant_a.post("/v1/requests", json=body), 422, "invalid")

    assert places(problem) == ["#/image"]


def test_a_request_that_names_none_gets_the_default(api: Api, folder: Path):
    shown = _with_store(api, folder, "debian")
    upload(shown.operator)
    upload(shown.operator, name="other")

    def image_of(**fields: str) -> str:
        made = shown.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1, **fields})
        return str(made.json()["image"])

    assert image_of() == "debian:1"
    assert image_of(image="other") == "other:1"


def test_an_image_is_removed_once_nothing_needs_it(images: Api, folder: Path):
    upload(images.operator)
    body = {"vm_type": "small", "count": 1, "image": "debian"}
    request = images.tenant_a.post("/v1/requests", json=body).json()["id"]
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
    body = {"vm_type": "small", "count": 1, "image": "debian"}
    problem = the_problem(api.tenant_a.post("/v1/requests", json=body), 422, "invalid")
    assert "importing" in problem["detail"]
    the_problem(api.tenant_a.post("/v1/images", json=FETCH), 403, "forbidden")
    elsewhere = FETCH | {"url": "https://evil.example.org/images/debian.qcow2"}
    refused = the_problem(operator.post("/v1/images", json=elsewhere), 422, "url_refused")
    assert places(refused) == ["#/url"]
    the_problem(images.operator.post("/v1/images", json=FETCH), 422, "url_refused")


def _operator(api: Api) -> str:
    return api.registry.tokens.create("operator", None, "fetcher", actor="cli")[1]


def hold(api: Api) -> None:
    """Lose two hosts with the image on its way there."""
    registry = api.registry
    for number in (1, 2):
        host = add_host(registry, f"poor-{number}")
        request = add_request(registry, image="debian")
        place(registry, request, host, lease=registry.leases.acquire("control", "cc-1", 600))
        [copy] = [each for each in registry.images.copies("debian") if each.host == host.name]
        claimed = registry.image_copies.claim_upload(copy.id, "w1", 60)
        assert claimed is not None
        registry.image_copies.record_volume(claimed.claim, claimed.volume)
        for _ in range(2):
            registry.hosts.record_miss(host.id, "silent", unreachable_after=2, down_after=9)


def test_an_image_that_hosts_do_not_survive_is_held_until_an_operator_releases_it(images: Api):
    upload(images.operator)
    hold(images)

    body = images.operator.get("/v1/images/debian").json()
    assert body["held_at"] is not None
    assert "poor-1, poor-2" in body["held_reason"]
    # Names of hosts are not for tenants.
    seen = images.tenant_a.get("/v1/images/debian").json()
    assert seen["held_reason"] == "hosts stopped answering while they received it"
    the_problem(images.tenant_a.post("/v1/images/debian/release"), 403, "forbidden")
    [vm, *_] = images.tenant_a.get("/v1/vms").json()["items"]
    assert vm["waits_for_image"]["held"]

    released = images.operator.post("/v1/images/debian/release")

    assert released.status_code == 200
    assert (released.json()["held_at"], released.json()["held_reason"]) == (None, None)
    assert images.operator.post("/v1/images/debian/release").json() == released.json()
    the_problem(images.operator.post("/v1/images/none/release"), 404, "not_found")


def make_qcow2(file: Path, size: str) -> None:
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=512"]
    subprocess.run([*command, str(file), size], check=True)


def test_what_qemu_cannot_open_is_never_ready(images: Api, folder: Path, tmp_path: Path):
    file = tmp_path / "whole.qcow2"
    make_qcow2(file, "1M")
    whole = file.read_bytes()[:4096]
    damaged = bytearray(whole)
    table = int.from_bytes(whole[40:48])
    damaged[table : table + 8] = (1 << 63 | 513).to_bytes(8)

    refused = upload(images.operator, bytes(damaged), format="qcow2")

    the_problem(refused, 422, "image_refused")
    assert "QEMU" in refused.text or "qemu" in refused.text
    assert stored(folder) == []


def test_an_api_without_qemu_leaves_the_check_to_a_worker(
    images: Api, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "whole.qcow2"
    make_qcow2(file, "64K")
    content = file.read_bytes()
    assert len(content) <= 4096
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        made = upload(images.operator, content, format="qcow2").json()
        assert made["state"] == "importing"
        wanted = {"vm_type": "small", "count": 1, "image": "debian"}
        the_problem(images.tenant_a.post("/v1/requests", json=wanted), 422, "invalid")

        assert check(images, folder, made["id"]) is TaskOutcome.FAILED

    body = images.operator.get("/v1/images/debian").json()
    assert "install qemu-utils" in body["last_error"]
    assert stored(folder) == []

    again = upload(images.operator, content, format="qcow2").json()
    assert again["state"] == "ready"


def test_a_worker_checks_what_was_sent_to_an_api_without_qemu(
    images: Api, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "whole.qcow2"
    make_qcow2(file, "64K")
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        made = upload(images.operator, file.read_bytes(), format="qcow2").json()

    assert check(images, folder, made["id"]) is TaskOutcome.DONE

    assert images.operator.get("/v1/images/debian").json()["state"] == "ready"


def check(api: Api, folder: Path, key: str) -> TaskOutcome:
    """Do what a worker does with an image that is importing."""
    context = WorkerContext(
        registry=api.registry,
        hosts=HostLimits(None, max_threads=1, pause_s=0, wait_s=0),  # type: ignore[arg-type]  # asks none
        store=ImageStore(folder, max_bytes=4096),
        owner="w1",
        lease_s=60,
    )
    return imports.import_image(UUID(key), context)


def test_where_there_are_keys_images_are_signed_or_refused(api: Api, folder: Path):
    store = ImageStore(folder, max_bytes=4096, keys=KEYS)
    images = _with_store(api, folder, store=store)
    good = minisig(hashlib.blake2b(RAW).digest()).decode()

    unsigned = upload(images.operator)
    wrong = upload(images.operator, RAW + RAW, signature=good)

    the_problem(unsigned, 422, "image_refused")
    assert "it is not signed, and images here are: by one of minisign key" in unsigned.text
    assert "--signature FILE" in unsigned.text
    the_problem(wrong, 422, "image_refused")
    assert "not of this content" in wrong.text
    assert stored(folder) == []

    body = upload(images.operator, signature=good).json()
    assert body["signed_by"] == "minisign key 0706050403020100 (release.pub)"
    assert images.tenant_a.get("/v1/images/debian").json()["signed_by"] == body["signed_by"]


def test_a_signature_with_a_comment_in_any_language_is_accepted(api: Api, folder: Path):
    images = _with_store(api, folder, store=ImageStore(folder, max_bytes=4096, keys=KEYS))
    comment = "timestamp:1\tfür Müller — 版".encode()
    good = minisig(hashlib.blake2b(RAW).digest(), comment=comment).decode()

    shown = upload(images.operator, signature=good)

    assert shown.status_code == 201, shown.text
    assert shown.json()["signed_by"] == "minisign key 0706050403020100 (release.pub)"
    for control in ("\0", "\x1b[2J", "\x85"):
        refused = upload(images.operator, signature=good.replace("M", control))
        the_problem(refused, 422, "invalid")


def test_an_image_that_was_here_unsigned_is_signed_when_it_is_added_again(api: Api, folder: Path):
    add_image(
        api.registry,
        format="raw",
        sha256=hashlib.sha256(RAW).hexdigest(),
        size_bytes=1024,
        virtual_size_bytes=1024,
    )
    signing = _with_store(api, folder, store=ImageStore(folder, max_bytes=4096, keys=KEYS))

    good = minisig(hashlib.blake2b(RAW).digest()).decode()
    body = upload(signing.operator, signature=good).json()

    assert body["revision"] == 1
    assert body["signed_by"] == "minisign key 0706050403020100 (release.pub)"
