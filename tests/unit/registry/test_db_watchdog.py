"""Whether a server answers: who suspects it, who is let go, and when it is well again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from registry.db.db_watchdog import PATIENCE_S, DbWatchdog, ServerHangsError
from tests.servers.running import eventually


class Server:
    """One that answers when it is told to, and counts who connects."""

    def __init__(self) -> None:
        self.hangs = False
        self.asked = threading.Semaphore(0)
        self._may_tell = threading.Semaphore(0)
        self.now = 1000.0
        self.pulse = DbWatchdog(self._answers, now=lambda: self.now)

    def _answers(self) -> bool:
        self.asked.release()
        self._may_tell.acquire()
        return not self.hangs

    def tell(self) -> None:
        """Let whoever asks have an answer."""
        assert self.asked.acquire(timeout=60), "nobody asked"
        self._may_tell.release()

    def is_known_to_hang(self) -> bool:
        try:
            self.pulse.check()
        except ServerHangsError:
            return True
        return False


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.pulse.close()
    found.hangs = False
    found._may_tell.release(10)


def nobody_asks(server: Server) -> bool:
    return not server.asked.acquire(timeout=0.2)


def test_a_short_wait_makes_nobody_ask(server: Server) -> None:
    server.pulse.check_wait(server.now - PATIENCE_S + 0.1)

    assert nobody_asks(server)


def test_a_long_wait_goes_on_where_the_server_answers_others(server: Server) -> None:
    server.pulse.check_wait(server.now - PATIENCE_S)
    server.tell()
    eventually(lambda: not server.pulse._probing)

    server.now += PATIENCE_S - 1
    server.pulse.check_wait(0)
    assert nobody_asks(server)  # it answered just now

    server.now += 1
    server.pulse.check_wait(0)
    server.tell()
    assert not server.is_known_to_hang()


def test_who_waits_is_let_go_when_nobody_can_connect_and_all_is_well_when_somebody_can(
    server: Server,
) -> None:
    server.hangs = True
    server.pulse.check_wait(0)
    server.pulse.check_wait(0)  # one asks for all
    server.tell()
    eventually(server.is_known_to_hang)
    with pytest.raises(ServerHangsError):
        server.pulse.check_wait(server.now)  # also who has just begun to wait

    server.hangs = False
    server.tell()
    eventually(lambda: not server.is_known_to_hang())
    server.pulse.check_wait(server.now)


def test_a_connection_that_came_to_nothing_is_proof_enough(server: Server) -> None:
    server.pulse.record_timeout()

    assert server.is_known_to_hang()
    server.tell()
    eventually(lambda: not server.is_known_to_hang())


def test_a_closed_pulse_asks_nobody(server: Server) -> None:
    server.pulse.close()

    server.pulse.check_wait(0)

    assert nobody_asks(server)


class Unable:
    """One that cannot look for a reason of its own, such as that no file is left."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.looks = 0
        self.now = 1000.0
        self.pulse = DbWatchdog(self._answers, now=lambda: self.now)

    def _answers(self) -> bool:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return True


@pytest.mark.parametrize("error", [OSError("too many open files"), MemoryError(), TypeError("?")])
def test_a_look_that_cannot_be_taken_refuses_nobody_and_is_taken_again(error: Exception) -> None:
    unable = Unable(error)
    unable.pulse.record_timeout()
    eventually(lambda: unable.looks == 1 and not unable.pulse._probing)

    unable.pulse.check()  # nobody knows, so everybody waits for themselves

    unable.pulse.check_wait(0)
    assert unable.looks == 1  # not at each of ten questions a second
    unable.error = None
    unable.now += 1
    unable.pulse.check_wait(0)
    eventually(lambda: unable.looks == 2 and not unable.pulse._probing)
    unable.pulse.check()


def test_a_look_that_gets_no_thread_refuses_nobody_and_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unable = Unable(None)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        unable.pulse.record_timeout()
        unable.pulse.check()
        unable.now += 1
        unable.pulse.check_wait(0)
        unable.pulse.check()

    unable.now += 1
    unable.pulse.check_wait(0)
    eventually(lambda: unable.looks == 1 and not unable.pulse._probing)
