"""Leases are judged by the database's clock, and an epoch has one holder."""

from __future__ import annotations

from datetime import timedelta

import pytest

from registry import LeaseLostError, Registry, StaleEpochError
from registry.rounds import CONTROL_LEASE
from tests.raw_sql import RawSql
from tests.register import a_cluster, a_commit, take_lease


def expire(raw: RawSql, name: str = CONTROL_LEASE) -> None:
    """Let time pass, as far as the database is concerned."""
    over = raw.before("now", "1 seconds")
    raw.run(f"UPDATE leases SET expires_at = {over} WHERE name = ?", name)


def test_a_live_lease_is_not_given_to_another(register: Registry) -> None:
    lease = register.leases.acquire("control", "one", 60)

    assert lease is not None
    assert lease.epoch == 1
    assert lease.expires_at > register.now()
    assert register.leases.acquire("control", "two", 60) is None


def test_the_holder_may_take_its_own_lease_again_in_the_same_epoch(register: Registry) -> None:
    first = take_lease(register, "one")
    second = take_lease(register, "one", 900)

    assert second.epoch == first.epoch
    assert second.expires_at > first.expires_at


def test_an_expired_lease_goes_to_another_with_a_higher_epoch(
    register: Registry, raw: RawSql
) -> None:
    first = take_lease(register, "one")
    expire(raw)

    second = take_lease(register, "two")

    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLostError, match="one has lost"):
        register.leases.renew(first, 60)


def test_the_same_holder_after_expiry_reigns_anew(register: Registry, raw: RawSql) -> None:
    first = take_lease(register, "one")
    expire(raw)

    with pytest.raises(LeaseLostError):
        register.leases.renew(first, 60)

    assert take_lease(register, "one").epoch == first.epoch + 1


def test_renewing_extends(register: Registry) -> None:
    lease = take_lease(register, length_s=60)

    renewed = register.leases.renew(lease, 600)

    assert renewed.epoch == lease.epoch
    assert renewed.expires_at > lease.expires_at


def test_a_holder_leads_since_a_time_that_was_after_the_clock_stepped_back(
    register: Registry, raw: RawSql
) -> None:
    lease = take_lease(register, length_s=60)
    raw.run("UPDATE leases SET held_since = ?", register.now() + timedelta(days=1))

    register.leases.renew(lease, 60)

    again = take_lease(register, length_s=60)
    assert again.held_since is not None
    assert again.held_since <= register.now()


def test_a_released_lease_is_free_at_once_and_no_longer_good(register: Registry) -> None:
    first = take_lease(register, "one")
    register.leases.release(first)

    with pytest.raises(StaleEpochError, match="expired"):
        register.rounds.read_cluster(first)
    second = take_lease(register, "two")
    register.leases.release(first)  # lost: nothing happens

    assert second.epoch == first.epoch + 1
    register.rounds.read_cluster(second)


def test_leases_of_other_names_are_independent(register: Registry) -> None:
    take_lease(register, "one")

    assert register.leases.acquire("purge", "two", 60) is not None


def test_a_read_under_a_lease_that_is_not_current_is_refused(
    register: Registry, raw: RawSql
) -> None:
    a_cluster(register)
    first = take_lease(register, "one")
    expire(raw)
    with pytest.raises(StaleEpochError, match="expired"):
        register.rounds.read_cluster(first)

    take_lease(register, "two")

    with pytest.raises(StaleEpochError, match="two's"):
        register.rounds.read_cluster(first)


def test_a_leader_that_woke_from_a_long_pause_cannot_commit(
    register: Registry, raw: RawSql
) -> None:
    a_cluster(register)
    first = take_lease(register, "one")
    expire(raw)
    with pytest.raises(StaleEpochError, match="expired"):  # even before anybody took over
        register.rounds.commit_round(a_commit(first))
    second = take_lease(register, "two")

    with pytest.raises(StaleEpochError, match="epoch 2 is two's"):
        register.rounds.commit_round(a_commit(first))
    with pytest.raises(StaleEpochError):
        register.rounds.commit_round(a_commit(second, epoch=first.epoch))
    with pytest.raises(StaleEpochError):
        register.rounds.commit_round(a_commit(second, holder="one"))

    assert register.rounds.last() is None
    assert register.rounds.commit_round(a_commit(second)).number == 1


def test_without_any_lease_nothing_is_committed(register: Registry) -> None:
    lease = take_lease(register)
    other = a_commit(lease)
    register.leases.release(lease)

    with pytest.raises(StaleEpochError):
        register.rounds.commit_round(other)
