"""A worker survives whatever lies in its queue, and then does real work in the same process."""

from __future__ import annotations

import hashlib
import http.server
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis as client
from pydantic import SecretStr

from controller.simulations.queue import SimulationQueue
from controller.worker_queue import CeleryQueue
from registry import ImageState
from registry.images import NewImage
from service.broker.redis_inbox import MAX_WAITING
from service.settings import SharedSettings
from tests.integration.workers.site import ServiceProcess, Site, open_site
from tests.register import ACTOR
from tests.servers.redis_server import NEEDS_REDIS, PATIENCE_S, redis_server
from tests.servers.running import eventually
from tests.strange_messages import a_message, strange_messages, with_header

pytestmark = [pytest.mark.sqlite, pytest.mark.long]

MESSAGES = 10_000
#: What a worker may need more than before, whatever it is sent.
MAX_MORE_KIB = 64 << 10


@dataclass
class Attacked:
    """A running worker, a way to put bytes into its queue, and an image that it can fetch."""

    site: Site
    worker: ServiceProcess
    put: Callable[[list[bytes]], None]
    waiting: Callable[[], int]
    queue: CeleryQueue
    mirror: str
    socket: Path

    def survives(self, contents: list[bytes]) -> None:
        self.put(contents)
        eventually(lambda: self._ended() or self.waiting() == 0, within_s=PATIENCE_S)
        assert not self._ended(), self.worker.log.read_text(errors="replace")[-3000:]

    def _ended(self) -> bool:
        return self.worker.process.poll() is not None

    def works(self) -> None:
        """Have it fetch an image: a message, a row, a file, in the process that was attacked."""
        image = self.site.registry.images.fetch(
            NewImage(name=f"image-{os.urandom(4).hex()}", format="raw"),
            url=f"{self.mirror}/image.raw",
            sha256=hashlib.sha256(b"x" * 512).hexdigest(),
            actor=ACTOR,
        )
        self.queue.send("workers.import_image", image.id)

        def is_over() -> bool:
            state = self.site.registry.images.get(f"{image.name}:1").state
            return self._ended() or state is not ImageState.IMPORTING

        eventually(is_over, within_s=PATIENCE_S)
        assert not self._ended(), self.worker.log.read_text(errors="replace")[-3000:]
        assert self.site.registry.images.get(f"{image.name}:1").state is ImageState.READY

    def most_memory_kib(self) -> int:
        [line] = [
            line
            for line in Path(f"/proc/{self.worker.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM:")
        ]
        return int(line.split()[1])

    def dropped(self) -> dict[str, float]:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket))) as asking:
            shown = asking.get("http://worker/metrics", timeout=PATIENCE_S).text
        lines = [line for line in shown.splitlines() if line.startswith("fuga_messages_dropped_t")]
        return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


@contextmanager
def mirror(folder: Path) -> Iterator[str]:
    folder.mkdir()
    (folder / "image.raw").write_bytes(b"x" * 512)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def attacked(
    folder: Path,
    broker: str | None,
    put: Callable[[list[bytes]], None],
    waiting: Callable[[], int],
    prepare: Callable[[], None] = lambda: None,
) -> Iterator[Attacked]:
    socket = folder / "worker.sock"
    with open_site(folder / "site") as site, mirror(folder / "mirror") as url:
        prepare()
        env = {"FUGA_BROKER_URL": broker} if broker else {}
        worker = site.start(
            "workers",
            FUGA_METRICS_LISTEN=f"unix:{socket}",
            FUGA_IMAGE_URLS=json.dumps([f"{url}/"]),
            **env,
        )
        eventually(lambda: worker.logged("worker_started"), within_s=PATIENCE_S)
        secret = SecretStr(broker) if broker else None
        settings = SharedSettings(state_dir=site.folder, broker_url=secret)
        queue = CeleryQueue(settings)
        yield Attacked(site, worker, put, waiting, queue, url, socket)


@dataclass
class OnRedis:
    url: str
    redis: client.Redis

    def put(self, contents: list[bytes]) -> None:
        for start in range(0, len(contents), 500):
            self.redis.lpush("fuga", *contents[start : start + 500])

    def waiting(self) -> int:
        return int(self.redis.llen("fuga"))  # type: ignore[arg-type]

    @contextmanager
    def worker(
        self, folder: Path, prepare: Callable[[], None] = lambda: None
    ) -> Iterator[Attacked]:
        with attacked(folder, self.url, self.put, self.waiting, prepare) as found:
            yield found


@pytest.fixture
def on_redis(tmp_path: Path) -> Iterator[OnRedis]:
    with redis_server(tmp_path) as server, client.Redis.from_url(server.url) as redis:
        yield OnRedis(server.url, redis)


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[Attacked]:
    messages = tmp_path / "site" / "broker" / "messages"
    count = itertools.count()

    def put(contents: list[bytes]) -> None:
        for content in contents:
            there = tmp_path / "writing"
            there.write_bytes(content)
            there.rename(messages / f"{next(count):09}_x.fuga.msg")

    def waiting() -> int:
        return sum(1 for _ in messages.iterdir())

    with attacked(tmp_path, None, put, waiting) as found:
        yield found


@NEEDS_REDIS
def test_one_forged_header_ends_no_worker(on_redis: OnRedis, tmp_path: Path) -> None:
    with on_redis.worker(tmp_path) as found:
        found.survives([with_header("timelimit", "x")])

        found.works()
        assert found.dropped() == {"headers": 1.0}


@NEEDS_REDIS
def test_10_000_strange_messages_in_redis(on_redis: OnRedis, tmp_path: Path) -> None:
    with on_redis.worker(tmp_path) as found:
        found.works()
        before = found.most_memory_kib()

        found.survives(list(itertools.islice(strange_messages(1), MESSAGES)))

        found.works()
        assert found.most_memory_kib() < before + MAX_MORE_KIB
        assert sum(found.dropped().values()) > 0.8 * MESSAGES
        assert len(found.worker.logged("messages_dropped")) < 10


@NEEDS_REDIS
def test_a_message_of_100_mb_is_not_read(on_redis: OnRedis, tmp_path: Path) -> None:
    with on_redis.worker(tmp_path) as found:
        found.works()
        before = found.most_memory_kib()

        found.survives([b"[" * (100 << 20)] * 3)

        found.works()
        assert found.most_memory_kib() < before + MAX_MORE_KIB
        assert found.dropped()["too_long"] == 3.0


@NEEDS_REDIS
def test_a_queue_that_is_no_list_is_removed(on_redis: OnRedis, tmp_path: Path) -> None:
    def spoil() -> None:
        on_redis.redis.set("fuga", "x")

    with on_redis.worker(tmp_path, spoil) as found:
        found.works()  # the sender was refused, or it was removed in time

        spoil()
        eventually(lambda: on_redis.redis.type("fuga") == b"none", within_s=PATIENCE_S)
        found.works()
        assert found.dropped()["not_a_queue"] >= 1.0


@NEEDS_REDIS
def test_what_kombu_keeps_besides_the_queue_is_read_by_nobody(
    on_redis: OnRedis, tmp_path: Path
) -> None:
    def spoil() -> None:
        on_redis.redis.sadd("_kombu.binding.fuga", "x", b"\xff", "a\x06\x16b\x06\x16elsewhere")
        on_redis.redis.set("_kombu.binding.celeryev", "x")
        on_redis.redis.hset("unacked", mapping={"x": "{", "y": "[1, 2, 3]"})
        on_redis.redis.zadd("unacked_index", {"x": 1, "y": 2, "z": 3})
        on_redis.redis.lpush("fuga\x06\x163", "x")

    with on_redis.worker(tmp_path, spoil) as found:
        found.survives([b"x"])
        found.works()

        assert on_redis.redis.hlen("unacked") == 2
        assert on_redis.redis.llen("elsewhere") == 0


@NEEDS_REDIS
def test_a_flood_of_well_formed_messages_is_bounded(on_redis: OnRedis, tmp_path: Path) -> None:
    made_up = json.dumps(a_message()).encode()
    with on_redis.worker(tmp_path) as found:
        found.put([b"x"] * 1_000 + [made_up] * 60_000)
        # Measured now and then: the first time perhaps while more were still being put in.
        eventually(
            lambda: found.dropped().get("flood") and found.waiting() <= MAX_WAITING,
            within_s=PATIENCE_S,
        )

        on_redis.redis.delete("fuga")
        found.works()


def test_10_000_strange_files_in_the_broker_s_folder(in_folder: Attacked) -> None:
    in_folder.works()
    before = in_folder.most_memory_kib()

    in_folder.survives(list(itertools.islice(strange_messages(2), MESSAGES)))

    in_folder.works()
    assert in_folder.most_memory_kib() < before + MAX_MORE_KIB
    assert sum(in_folder.dropped().values()) > 0.8 * MESSAGES


def test_what_is_no_file_of_ours_in_the_broker_s_folder(in_folder: Attacked) -> None:
    messages = in_folder.site.folder / "broker" / "messages"
    secret = in_folder.site.folder / "secret"
    secret.write_text("x")
    os.mkfifo(messages / "0_pipe.fuga.msg")
    (messages / "0_zero.fuga.msg").symlink_to("/dev/zero")
    (messages / "0_secret.fuga.msg").symlink_to(secret)
    (messages / "0_folder.fuga.msg").mkdir()
    (messages / "0_folder.fuga.msg" / "file").write_text("x")
    (messages / "0_nothing.fuga.msg").symlink_to("nowhere")
    with (messages / "0_long.fuga.msg").open("wb") as sparse:
        sparse.truncate(1 << 40)
    (messages / os.fsdecode(b"0_\xff\x1b.fuga.msg")).write_bytes(b"\xff")
    shut = messages / "0_shut.fuga.msg"
    shut.write_bytes(b"x")
    shut.chmod(0)

    in_folder.survives([])

    in_folder.works()
    assert secret.read_text() == "x"
    assert in_folder.dropped()["not_a_file"] >= 5.0
    assert list((messages.parent / "taken").iterdir()) == []


@NEEDS_REDIS
def test_strange_messages_end_no_simulation_worker(on_redis: OnRedis, tmp_path: Path) -> None:
    queue, log = "fuga-simulations", tmp_path / "simulation.log"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("FUGA_")}
    command = ["-m", "controller.cli.main", "simulation-worker", str(tmp_path), "--jobs", "1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=inherited | {"FUGA_BROKER_URL": on_redis.url, "FUGA_STATE_DIR": str(tmp_path)},
            stdout=output,
            stderr=output,
        )
    try:
        worker = ServiceProcess(process, log)
        eventually(lambda: worker.logged("simulation_worker_started"), within_s=PATIENCE_S)
        contents = list(itertools.islice(strange_messages(3), 1_000))
        on_redis.redis.lpush(queue, with_header("timelimit", "x"), *contents)
        eventually(lambda: process.poll() or not on_redis.redis.llen(queue), within_s=PATIENCE_S)

        settings = SharedSettings(broker_url=SecretStr(on_redis.url))
        assert SimulationQueue(settings).send(tmp_path, "nothing")
        eventually(
            lambda: process.poll() or worker.logged("simulation_not_there"), within_s=PATIENCE_S
        )
        assert process.poll() is None
        assert len(worker.logged("messages_dropped")) == 1
    finally:
        process.terminate()
        process.wait(60)
