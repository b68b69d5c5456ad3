"""Workers that fetch images over HTTP, from this machine: well, badly, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any

import pytest

from hypervisor import HostConnection
from registry import ImageState, Registry
from registry.hosts import HostAccess
from registry.images import Image, ImageStore, NewImage
from tests.raw_sql import RawSql
from tests.register import ACTOR
from tests.unit.registry.test_registry_image_signatures import KEYS, minisig
from workers import imports
from workers.context import TaskOutcome, WorkerContext
from workers.host_limits import HostLimits

pytestmark = pytest.mark.long

CONTENT = os.urandom(5 << 19)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MAX_BYTES = 4 << 20


@dataclass
class Site:
    """What a web server gives for each path: status, headers and body."""

    url: str = ""
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            status, headers, body = site.pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    site.pages["/images/debian.raw"] = (200, {}, CONTENT)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


class NoHosts:
    def use(self, host: HostAccess) -> HostConnection:
        raise AssertionError(f"nobody needs {host.uri} to fetch an image")


@dataclass
class Fetching:
    """A worker with an empty store, and one image that it is to fetch."""

    registry: Registry
    folder: Path
    site: Site

    def ask(self, path: str = "/images/debian.raw", sha256: str = SHA256) -> Image:
        return self.registry.images.fetch(
            NewImage(name="debian", format="raw"),
            url=self.site.url + path,
            sha256=sha256,
            actor=ACTOR,
        )

    def fetch(self, image: Image, owner: str = "w1", **changes: Any) -> TaskOutcome:
        values: dict[str, Any] = {
            "registry": self.registry,
            "hosts": HostLimits(NoHosts(), max_threads=1, pause_s=0, wait_s=0),
            "store": ImageStore(self.folder, max_bytes=MAX_BYTES),
            "image_urls": {f"{self.site.url}/images/"},
            "owner": owner,
            "lease_s": 60.0,
            "checkpoint": lambda _: None,
        }
        return imports.import_image(image.id, WorkerContext(**(values | changes)))

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []

    def told(self) -> Image:
        return self.registry.images.get("debian:1")


@pytest.fixture
def fetching(register: Registry, tmp_path: Path, site: Site) -> Fetching:
    return Fetching(register, tmp_path / "images", site)


def test_an_image_is_fetched_checked_and_on_offer(fetching: Fetching) -> None:
    image = fetching.ask()
    assert image.state == ImageState.IMPORTING
    assert fetching.ask() == image
    [due] = fetching.registry.assignments.send_due_tasks(resend_after_s=0)
    assert (due.task, due.id) == ("workers.import_image", image.id)

    assert fetching.fetch(image) is TaskOutcome.DONE

    shown = fetching.told()
    assert (shown.state, shown.size_bytes) == (ImageState.READY, len(CONTENT))
    [file] = fetching.files()
    assert file.read_bytes() == CONTENT
    assert fetching.registry.assignments.send_due_tasks(resend_after_s=0) == ()
    assert fetching.fetch(image) is TaskOutcome.NOT_OURS
    events = fetching.registry.events.list(subject_id=str(image.id))
    assert [each.to_state for each in events] == ["importing", "ready"]


def test_a_redirect_leads_on_within_the_list(fetching: Fetching) -> None:
    fetching.site.pages["/images/latest"] = (302, {"Location": "debian.raw"}, b"")

    assert fetching.fetch(fetching.ask("/images/latest")) is TaskOutcome.DONE


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("/secret", "not within"),
        ("http://127.0.0.1:1/images/debian.raw", "not within"),
        ("file:///etc/shadow", "http://HOST"),
        ("/images/../secret", "not within"),
        ("/images/loop", "more than 5 redirects"),
    ],
)
def test_a_redirect_does_not_lead_out_of_the_list(
    fetching: Fetching, location: str, reason: str
) -> None:
    fetching.site.pages["/images/loop"] = (302, {"Location": location}, b"")
    fetching.site.pages["/secret"] = (200, {}, CONTENT)

    assert fetching.fetch(fetching.ask("/images/loop")) is TaskOutcome.FAILED

    assert reason in (fetching.told().last_error or "")
    assert "/secret" not in fetching.site.asked
    assert fetching.files() == []


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ((404, {}, b""), "answers 404"),
        ((200, {}, b"something else".ljust(512)), "SHA-256"),
        ((200, {}, b"an error page"), "whole sectors"),
        ((200, {"Content-Length": "99999999"}, b""), "99999999 bytes, and the limit is 4194304"),
        ((200, {"Content-Length": str(len(CONTENT) + 512)}, CONTENT), "cannot be downloaded"),
    ],
)
def test_what_does_not_come_as_it_should_fails_and_says_why(
    fetching: Fetching, page: tuple[int, dict[str, str], bytes], reason: str
) -> None:
    fetching.site.pages["/images/debian.raw"] = page

    assert fetching.fetch(fetching.ask()) is TaskOutcome.FAILED

    shown = fetching.told()
    assert shown.state == ImageState.FAILED
    assert reason in (shown.last_error or "")
    assert fetching.files() == []


def test_what_the_stores_disk_has_no_room_for_is_not_downloaded(fetching: Fetching) -> None:
    store = ImageStore(fetching.folder, max_bytes=MAX_BYTES, margin_bytes=1 << 60)

    assert fetching.fetch(fetching.ask(), store=store) is TaskOutcome.FAILED

    assert "FUGA_IMAGE_MARGIN_GIB" in (fetching.told().last_error or "")
    assert fetching.files() == []


def test_a_download_ends_where_its_beginning_is_no_image(fetching: Fetching) -> None:
    came: list[str] = []
    fetching.site.pages["/images/debian.raw"] = (200, {}, b"KDMV" + CONTENT[4:])

    assert fetching.fetch(fetching.ask(), checkpoint=came.append) is TaskOutcome.FAILED

    assert "VMDK" in (fetching.told().last_error or "")
    assert len(came) < len(CONTENT) >> 17  # pieces come in 64 KiB


def test_more_than_is_allowed_is_not_stored_though_nobody_announced_it(fetching: Fetching) -> None:
    headers = {"Content-Length": "", "Transfer-Encoding": "identity", "Connection": "close"}
    fetching.site.pages["/images/debian.raw"] = (200, headers, b"\0" * (MAX_BYTES + 512))

    assert fetching.fetch(fetching.ask()) is TaskOutcome.FAILED
    assert fetching.files() == []


def test_a_list_that_was_shortened_since_counts(fetching: Fetching) -> None:
    assert fetching.fetch(fetching.ask(), image_urls=()) is TaskOutcome.FAILED

    assert "FUGA_IMAGE_URLS is empty" in (fetching.told().last_error or "")
    assert fetching.site.asked == []


def test_a_server_that_is_not_there_is_said(fetching: Fetching) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        fetching.site.url = f"http://127.0.0.1:{free.getsockname()[1]}"

        assert fetching.fetch(fetching.ask()) is TaskOutcome.FAILED

    assert "cannot be downloaded" in (fetching.told().last_error or "")


def test_an_import_whose_worker_was_killed_begins_anew(fetching: Fetching, raw: RawSql) -> None:
    class KilledError(BaseException):
        pass

    def die(point: str) -> None:
        if point == "import.before_end":
            raise KilledError

    image = fetching.ask()
    with pytest.raises(KilledError):
        fetching.fetch(image, checkpoint=die)
    raw.run("UPDATE images SET lease_until = created_at")  # its time ran out

    assert fetching.fetch(image, "w2") is TaskOutcome.DONE
    assert len(fetching.files()) == 1


def test_a_worker_that_is_told_to_end_hands_its_import_back(fetching: Fetching) -> None:
    stopping = Event()
    image = fetching.ask()

    outcome = fetching.fetch(image, stopping=stopping, checkpoint=lambda _: stopping.set())

    assert outcome is TaskOutcome.HANDED_BACK
    assert fetching.files() == []
    assert fetching.fetch(image) is TaskOutcome.DONE


def test_an_image_removed_while_it_is_fetched_leaves_no_file(fetching: Fetching) -> None:
    image = fetching.ask()

    def remove(point: str) -> None:
        if point == "import.before_end":
            fetching.registry.images.remove("debian", actor=ACTOR)

    assert fetching.fetch(image, checkpoint=remove) is TaskOutcome.CLAIM_LOST

    assert fetching.files() == []
    assert fetching.registry.images.list(include_removed=True).items[0].state == "removed"


def test_requests_go_on_getting_the_newest_that_is_ready(fetching: Fetching) -> None:
    fetching.fetch(fetching.ask())
    fetching.ask(sha256="0" * 64)

    assert fetching.registry.images.get("debian").revision == 1
    assert fetching.registry.images.get("debian:2").state == ImageState.IMPORTING


@contextmanager
def a_socket_that(answers: Callable[[socket.socket], None]) -> Iterator[str]:
    """A mirror below HTTP: what it sends is of its own making. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(65536)
                        answers(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def trickle(first: bytes) -> Callable[[socket.socket], None]:
    """Send a beginning, and then a byte every now and then, for ever."""

    def send(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            time.sleep(0.05)
            connection.sendall(b"x")

    return send


def flood(first: bytes, more: bytes) -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(more)

    return send


OK = b"HTTP/1.1 200 OK\r\n"
BODY = OK + b"Content-Length: 1024000\r\n\r\n"
LINE = b"X-Line: " + b"x" * 1000 + b"\r\n"


@pytest.mark.parametrize(
    ("mirror", "reason"),
    [
        (trickle(BODY), "the time for 1048576 of them"),
        (trickle(OK + b"X-Slow: "), "the time for 1048576 of them"),
        (trickle(b""), "the time for 1048576 of them"),
        (flood(OK, LINE), "too large|Too large|too long|exceed"),
        (flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "the time for 1048576 of them"),
        (
            flood(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", LINE),
            "too large|Too large|too long|exceed",
        ),
        (flood(OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 4096), "cannot be downloaded"),
        (lambda c: c.sendall(OK + b"Content-Length: 9" * 2 + b"\r\n\r\n"), "cannot be downloaded"),
        (lambda c: c.sendall(BODY + b"half"), "cannot be downloaded"),
        (lambda c: c.sendall(b"\0" * 65536), "cannot be downloaded"),
    ],
    ids=[
        "one byte at a time",
        "one byte at a time in its head",
        "one byte at a time from the first",
        "a head without end",
        "only ever about to answer",
        "trailers without end",
        "a chunk's extension without end",
        "two lengths",
        "less than it said",
        "no HTTP",
    ],
)
def test_a_hostile_mirror_holds_no_thread(
    fetching: Fetching, mirror: Callable[[socket.socket], None], reason: str
) -> None:
    with a_socket_that(mirror) as url:
        fetching.site.url = url

        assert fetching.fetch(fetching.ask(), piece_deadline_s=1.5) is TaskOutcome.FAILED

    assert re.search(reason, fetching.told().last_error or "")
    assert fetching.files() == []


def test_a_slow_mirror_is_given_up_when_the_whole_time_is_over(fetching: Fetching) -> None:
    with a_socket_that(trickle(BODY)) as url:
        fetching.site.url = url

        assert fetching.fetch(fetching.ask(), upload_deadline_s=0.5) is TaskOutcome.FAILED

    assert "in 0.5 s, the whole time for it" in (fetching.told().last_error or "")


def test_a_worker_ends_though_its_mirror_says_nothing(fetching: Fetching) -> None:
    stopping, requested = Event(), Event()

    def say_nothing(connection: socket.socket) -> None:
        requested.set()
        stopping.set()
        connection.recv(1)

    with a_socket_that(say_nothing) as url:
        fetching.site.url = url

        assert fetching.fetch(fetching.ask(), stopping=stopping) is TaskOutcome.HANDED_BACK

    assert requested.is_set()


def test_an_image_removed_while_its_mirror_is_silent_is_let_go_of(fetching: Fetching) -> None:
    def remove(connection: socket.socket) -> None:
        fetching.registry.images.remove("debian", actor=ACTOR)
        connection.recv(1)

    with a_socket_that(remove) as url:
        fetching.site.url = url

        assert fetching.fetch(fetching.ask()) is TaskOutcome.CLAIM_LOST


def test_content_that_unpacks_itself_is_refused_and_nothing_of_it_is_unpacked(
    fetching: Fetching,
) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(512)) + packer.flush()
    for _ in range(2):
        bomb = gzip.compress(bomb, 9)
    assert len(bomb) < 4096
    headers = {"Content-Encoding": "gzip, gzip, gzip"}
    fetching.site.pages["/images/debian.raw"] = (200, headers, bomb)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert fetching.fetch(fetching.ask()) is TaskOutcome.FAILED

    assert "Content-Encoding: 'gzip, gzip, gzip'" in (fetching.told().last_error or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_an_import_leaves_a_thread_to_those_who_bring_images_to_hosts(fetching: Fetching) -> None:
    threads, imports_at_once = BoundedSemaphore(2), BoundedSemaphore(1)
    left: list[bool] = []
    second: list[TaskOutcome] = []

    def meanwhile(point: str) -> None:
        if point == "import.before_end":
            other = fetching.ask(sha256="0" * 64)
            second.append(
                fetching.fetch(other, upload_threads=threads, import_threads=imports_at_once)
            )
            left.append(threads.acquire(blocking=False))
            threads.release()

    outcome = fetching.fetch(
        fetching.ask(), checkpoint=meanwhile, upload_threads=threads, import_threads=imports_at_once
    )

    assert (outcome, second, left) == (TaskOutcome.DONE, [TaskOutcome.NOT_OURS], [True])


def test_an_import_takes_the_signature_beside_the_image(fetching: Fetching, tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "signed", max_bytes=MAX_BYTES, keys=KEYS)
    assert fetching.fetch(fetching.ask(), store=store) is TaskOutcome.FAILED
    assert "it is not signed, and images here are" in (fetching.told().last_error or "")
    blake2b = hashlib.blake2b(CONTENT).digest()
    fetching.site.pages["/images/debian.raw.minisig"] = (200, {}, minisig(b"something else"))
    assert fetching.fetch(fetching.ask(), store=store) is TaskOutcome.FAILED
    assert "not of this content" in fetching.registry.images.get("debian:2").last_error  # type: ignore[operator]
    fetching.site.pages["/images/debian.raw.minisig"] = (200, {}, b"x" * 8192)
    assert fetching.fetch(fetching.ask(), store=store) is TaskOutcome.FAILED
    assert "more than 4096 bytes" in (fetching.registry.images.get("debian:3").last_error or "")

    fetching.site.pages["/images/debian.raw.minisig"] = (200, {}, minisig(blake2b))
    assert fetching.fetch(fetching.ask(), store=store) is TaskOutcome.DONE

    shown = fetching.registry.images.get("debian")
    assert shown.signed_by == "minisign key 0706050403020100 (release.pub)"
