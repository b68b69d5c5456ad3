"""Connections are shared, bounded, and closed when nobody needs them."""

from __future__ import annotations

import threading

import pytest

from hypervisor import (
    HostConnection,
    HostConnections,
    HostEndpoint,
    HostPairMigrator,
    HostUnreachableError,
    MigratorPool,
)


def test_a_connection_given_back_is_lent_again() -> None:
    pool = HostConnections()
    with pool.use("x:///a") as first:
        pass
    with pool.use("x:///a") as second:
        assert second is first


def test_two_at_once_never_share_one() -> None:
    pool = HostConnections()
    with pool.use("x:///a") as first, pool.use("x:///a") as second:
        assert first is not second


def test_hosts_do_not_share_one() -> None:
    pool = HostConnections()
    with pool.use("x:///a") as first:
        pass
    with pool.use("x:///b") as second:
        assert second is not first
        assert second.uri == "x:///b"


def test_a_machine_that_was_taken_for_another_is_asked_by_no_connection_of_that_one() -> None:
    pool = HostConnections()
    with pool.use("x:///a", None, "one") as first:
        pass
    with pool.use("x:///a", None, "other") as second, pool.use("x:///a", None, "one") as third:
        assert second is not first
        assert second.machine == "other"
        assert third is first


def test_a_full_pool_gives_up_the_connection_idle_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(HostConnection, "close", lambda self: closed.append(self.uri))
    pool = HostConnections(limit=2)
    for uri in ("x:///a", "x:///b", "x:///a", "x:///c"):
        with pool.use(uri):
            pass

    assert closed == ["x:///b"]


def test_connections_idle_too_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(HostConnection, "close", lambda self: closed.append(self.uri))
    pool = HostConnections(idle_s=-1.0)
    for uri in ("x:///a", "x:///b"):
        with pool.use(uri):
            pass

    assert closed == ["x:///a"]


def test_whoever_asks_for_too_many_waits_until_one_is_given_back() -> None:
    pool = HostConnections(limit=1, deadline_s=60.0)
    lent, got = threading.Event(), threading.Event()

    def second() -> None:
        lent.wait()
        with pool.use("x:///b"):
            got.set()

    waiting = threading.Thread(target=second)
    waiting.start()
    with pool.use("x:///a"):
        lent.set()
        assert not got.wait(0.1)
    assert got.wait(60)
    waiting.join()


def test_whoever_waits_too_long_is_told_so() -> None:
    pool = HostConnections(limit=1, deadline_s=0.05)
    with (
        pool.use("x:///a"),
        pytest.raises(HostUnreachableError, match="all 1 connections are in use"),
        pool.use("x:///b"),
    ):
        pass


def test_a_connection_is_given_back_when_its_user_fails() -> None:
    pool = HostConnections(limit=1, deadline_s=0.05)
    with pytest.raises(ValueError, match="mine"), pool.use("x:///a"):
        raise ValueError("mine")
    with pool.use("x:///b"):
        pass


def test_closing_closes_what_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(HostConnection, "close", lambda self: closed.append(self.uri))
    pool = HostConnections()
    with pool.use("x:///a"):
        pass

    pool.close()

    assert closed == ["x:///a"]


A, B = HostEndpoint("x:///a"), HostEndpoint("x:///b")


def test_a_mover_that_did_its_work_is_lent_again_for_the_same_two_hosts() -> None:
    movers = MigratorPool()
    with movers.use(A, B) as first:
        pass
    with movers.use(A, B) as second, movers.use(A, B) as meanwhile, movers.use(B, A) as back:
        pass

    assert second is first
    assert meanwhile is not first
    assert (back.source, back.destination) == (B, A)


def test_a_mover_is_ended_with_what_failed_and_when_it_is_idle_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[HostPairMigrator] = []

    def close(self: HostPairMigrator) -> None:
        closed.append(self)

    monkeypatch.setattr(HostPairMigrator, "close", close)
    movers = MigratorPool(limit=1)
    with pytest.raises(RuntimeError), movers.use(A, B) as failed:
        raise RuntimeError
    assert closed == [failed]
    with movers.use(A, B) as older, movers.use(A, B) as younger:
        pass

    assert closed == [failed, younger]  # the one given back first
    movers.close()
    assert closed == [failed, younger, older]
    short = MigratorPool(idle_s=-1.0)
    with short.use(A, B) as idle:
        pass
    assert closed[-1] is idle
