"""Who reaches a destination's ports while a guest moves has nothing of it, and holds nothing up."""

from __future__ import annotations

import ctypes
import os
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hypervisor import DomainState, MigrationProgress, MoveHangsError, migrator
from tests.contract.moving_grounds import SLOW_MIB_S, Grounds, real
from tests.servers.lab_hosts import lab_cluster

__all__ = ["lab_cluster", "real"]

pytestmark = pytest.mark.qemu

RUNNING = DomainState.RUNNING
#: Of libvirt's default settings.
PORTS = range(49152, 49216)
#: So slow that strangers have time to look around.
STROLL_MIB_S = 4
PATIENCE_S = 5.0
#: Longer than a busy machine needs to start the destination's QEMU.
HANG_S = 8.0
_LISTENS = "0A"
_NBD_GREETING = b"NBDMAGICIHAVEOPT"
_NBD_STARTTLS, _NBD_LIST, _NBD_ACK = 5, 3, 1


@dataclass(frozen=True)
class MigrationPort:
    """A port on which a QEMU of the destination listens, and at which address."""

    address: str
    port: int


def address_of(real: Grounds) -> str:
    """The address by which the destination speaks with other hosts."""
    found = urlsplit(real.ends[1].uri).hostname
    assert found is not None
    return found


def first_process(real: Grounds, number: int) -> str:
    """The first process of a lab's host, in whose network it lives."""
    assert real.lab is not None
    return (real.lab.directory / "hosts" / str(number) / "pid").read_text().split()[0]


def listeners(real: Grounds) -> set[MigrationPort]:
    """What listens at the destination on the ports of moves."""
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        text = Path("/proc", first_process(real, 2), "net", table).read_text()
        for line in text.splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            shown, port = local.split(":")
            if state == _LISTENS and int(port, 16) in PORTS:
                words = [int(shown[at : at + 8], 16) for at in range(0, len(shown), 8)]
                packed = struct.pack(f"={len(words)}I", *words)
                found.add(MigrationPort(socket.inet_ntop(family, packed), int(port, 16)))
    return found


@contextmanager
def network_of(pid: str) -> Iterator[None]:
    """Let this thread have the network of another process."""
    with (
        Path("/proc/thread-self/ns/net").open() as own,
        Path(f"/proc/{pid}/ns/net").open() as other,
    ):
        _enter(other.fileno())
        try:
            yield
        finally:
            _enter(own.fileno())


def _enter(network: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(network, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with all that the hosts' have, of an authority that no host knows."""
    made = tmp_path_factory.mktemp("other-authority")
    script = Path(__file__).resolve().parents[2] / "lab" / "scripts" / "make-certs"
    subprocess.run(["bash", str(script), str(made), "10.213.0.1"], check=True, timeout=60)
    return made / "server-10.213.0.1"


def stranger(certificate: Path | None) -> ssl.SSLContext:
    """One who takes every host as it is, and shows that certificate or none."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate / "client-cert.pem", certificate / "client-key.pem")
    return context


def said(conversation: Callable[[socket.socket], bytes], address: str, port: int) -> bytes:
    """What a port says to a stranger; nothing where it refuses."""
    try:
        with socket.create_connection((address, port), timeout=PATIENCE_S) as connection:
            return conversation(connection)
    except OSError:  # of TLS, too
        return b""


def _option(connection: socket.socket, number: int) -> bytes:
    """Send an option of NBD without data; return the answer, with its head."""
    connection.sendall(b"IHAVEOPT" + struct.pack(">II", number, 0))
    head = _exactly(connection, 20)
    return head + _exactly(connection, struct.unpack(">8xIII", head)[2])


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise ConnectionError
        found += part
    return found


def _is_error(answer: bytes) -> bool:
    kind: int = struct.unpack(">8xIII", answer[:20])[1]
    return bool(kind & 1 << 31)


def exports(context: ssl.SSLContext | None) -> Callable[[socket.socket], bytes]:
    """Ask which disks are there, with TLS or without."""

    def ask(connection: socket.socket) -> bytes:
        if _exactly(connection, 18)[:16] != _NBD_GREETING:
            return b""
        connection.sendall(struct.pack(">I", 1))
        if context is not None:
            if _is_error(_option(connection, _NBD_STARTTLS)):
                return b""
            connection = context.wrap_socket(connection)
        answer = _option(connection, _NBD_LIST)
        return b"" if _is_error(answer) else answer

    return ask


def secrets(context: ssl.SSLContext) -> Callable[[socket.socket], bytes]:
    """Send what looks like a guest's memory, in TLS, and hear what comes."""

    def ask(connection: socket.socket) -> bytes:
        with context.wrap_socket(connection) as inside:
            inside.sendall(b"QEVM\0\0\0\3")
            # A server that refuses a certificate of TLS 1.3 says so after its handshake.
            return inside.recv(1) or b""

    return ask


@pytest.mark.sampled(2)
@pytest.mark.parametrize("who", ["nobody", "another authority"])
def test_a_stranger_finds_no_disk_and_no_memory_while_a_guest_moves(
    real: Grounds, other_authority: Path, who: str
) -> None:
    spec = real.running()
    wanted = real.arriving(spec, bandwidth_mib_s=STROLL_MIB_S)
    context = stranger(None if who == "nobody" else other_authority)
    address, seen, heard = address_of(real), set[MigrationPort](), list[bytes]()

    def look(_: MigrationProgress) -> None:
        if heard:
            return
        seen.update(listeners(real))
        for pid in (str(os.getpid()), first_process(real, 1)):
            with network_of(pid):
                for each in seen:
                    heard.append(said(exports(None), address, each.port))
                    heard.append(said(exports(context), address, each.port))
                    heard.append(said(secrets(context), address, each.port))

    real.live(wanted, on_progress=look)

    assert {each.address for each in seen} == {address}
    assert heard
    assert set(heard) == {b""}
    assert real.states(spec) == (None, RUNNING)


@contextmanager
def knocking(address: str, ports: Iterable[int], words: bytes = b"") -> Iterator[None]:
    """Let a stranger be the first to connect to ports, say some words, and stay."""
    over, held, connected = threading.Event(), list[socket.socket](), threading.Event()

    def knock() -> None:
        while not over.is_set():
            for port in ports:
                with suppress(OSError):
                    connection = socket.create_connection((address, port), timeout=0.2)
                    held.append(connection)
                    connected.set()
                    connection.sendall(words)
            del held[:-200]

    stranger = threading.Thread(target=knock)
    stranger.start()
    try:
        yield
    finally:
        over.set()
        stranger.join()
        for connection in held:
            connection.close()
    assert connected.is_set()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("words", [b"", b"QEVM\0\0\0\3" * 512], ids=["silent", "talking"])
def test_a_stranger_who_is_always_first_holds_no_move_up(real: Grounds, words: bytes) -> None:
    with knocking(address_of(real), PORTS[:2], words):
        # Without an address libvirt takes the first port.
        for address in (None, address_of(real)):
            spec = real.running()
            wanted = real.arriving(spec, address=address, bandwidth_mib_s=SLOW_MIB_S, hang_s=HANG_S)
            real.live(wanted, deadline_s=60)
            assert real.states(spec) == (None, RUNNING)


def test_a_stranger_at_every_port_leaves_the_guest_where_it_runs(
    real: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrator, "_ATTEMPTS", 1)
    spec = real.running()
    address, ports = address_of(real), PORTS[40:44]
    wanted = real.arriving(spec, address=address, ports=(ports[0], ports[-1]), hang_s=HANG_S)

    with knocking(address, ports), pytest.raises(MoveHangsError, match="to hosts alone") as raised:
        real.live(wanted)

    assert not raised.value.begun
    assert real.states(spec) == (RUNNING, None)
    # Nothing is left of it that would be in the next one's way.
    real.live(replace(wanted, hang_s=30.0))
    assert real.states(spec) == (None, RUNNING)


@pytest.mark.long
def test_a_guest_that_a_stranger_has_stand_still_runs_at_its_source_again(real: Grounds) -> None:
    spec = real.running()
    address = address_of(real)
    wanted = real.arriving(spec, address=address, bandwidth_mib_s=SLOW_MIB_S)

    with ExitStack() as stack:
        came = set[int]()

        def come(progress: MigrationProgress) -> None:
            if progress.memory_total_bytes and not came:
                came.update(each.port for each in listeners(real))
                stack.enter_context(knocking(address, came))

        with pytest.raises(MoveHangsError, match="stands still") as raised:
            real.live(wanted, on_progress=come)

    assert raised.value.begun
    assert real.states(spec) == (RUNNING, None)
