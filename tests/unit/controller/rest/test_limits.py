"""How often one caller may call, on a clock that the test turns."""

from __future__ import annotations

import uuid

import pytest

from controller.rest.middleware import rate_limits as limits_module
from controller.rest.middleware.callers import Caller
from controller.rest.middleware.rate_limits import Buckets, Rate, RateLimits
from controller.rest.problems.errors import RateLimitedError

LAPTOP = Caller("laptop", "a", token_id=uuid.UUID(int=1))
PHONE = Caller("phone", "a", token_id=uuid.UUID(int=2))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate(clock: Clock):
    buckets = Buckets(Rate(per_s=2, burst=3), clock)

    assert [buckets.take("k") for _ in range(3)] == [0.0] * 3
    assert buckets.take("k") == pytest.approx(0.5)
    clock.now += 0.5
    assert buckets.take("k") == 0.0
    assert buckets.take("k") > 0
    clock.now += 100
    assert [bool(buckets.take("k")) for _ in range(4)] == [False, False, False, True]


def test_over_any_time_no_more_comes_out_than_burst_and_rate(clock: Clock):
    buckets = Buckets(Rate(per_s=5, burst=10), clock)
    given = 0
    for _ in range(2000):
        clock.now += 0.01
        given += buckets.take("k") == 0.0

    assert given <= 10 + 5 * 20
    assert given >= 5 * 20


def test_keys_do_not_share(clock: Clock):
    buckets = Buckets(Rate(per_s=1, burst=1), clock)

    assert buckets.take("a") == 0.0
    assert buckets.take("b") == 0.0
    assert buckets.take("a") > 0


def test_what_is_remembered_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits_module, "MAX_KEYS", 10)
    buckets = Buckets(Rate(per_s=0.001, burst=1), clock)
    for number in range(50):
        buckets.take(number)
        assert len(buckets._levels) <= 11

    assert buckets.take(49) > 0, "the newest are remembered"


def test_processes_share_what_is_set(clock: Clock):
    processes = [RateLimits(Rate(per_s=10, burst=6), processes=3, clock=clock) for _ in range(3)]
    passed = 0
    for each in processes:
        for _ in range(10):
            try:
                each.count_success(LAPTOP, "Bearer x")
            except RateLimitedError:
                continue
            passed += 1

    assert passed == 6


def test_a_token_that_is_used_too_often_is_told_when_to_come_back(clock: Clock):
    limits = RateLimits(Rate(per_s=0.25, burst=1), clock=clock)
    limits.count_success(LAPTOP, "Bearer x")

    with pytest.raises(RateLimitedError, match="laptop") as refused:
        limits.count_success(LAPTOP, "Bearer x")

    assert refused.value.retry_after_s == 4
    limits.count_success(PHONE, "Bearer y")
    clock.now += 4
    limits.count_success(LAPTOP, "Bearer x")


def test_an_address_that_fails_is_refused_but_not_whose_token_was_good(clock: Clock):
    limits = RateLimits(failures=Rate(per_s=0.1, burst=2), clock=clock)
    limits.count_success(LAPTOP, "Bearer good")
    for _ in range(2):
        limits.check_address("192.0.2.1", "Bearer bad")
        limits.count_failure("192.0.2.1")

    with pytest.raises(RateLimitedError, match="this address") as refused:
        limits.check_address("192.0.2.1", "Bearer bad")
    assert refused.value.retry_after_s == 10
    with pytest.raises(RateLimitedError):
        limits.check_address("192.0.2.1", None)
    limits.check_address("192.0.2.1", "Bearer good")
    limits.check_address("192.0.2.2", "Bearer bad")
    clock.now += 10
    limits.check_address("192.0.2.1", "Bearer bad")


def test_a_token_that_was_good_and_is_revoked_is_like_any_other(clock: Clock):
    limits = RateLimits(failures=Rate(per_s=0.1, burst=1), clock=clock)
    limits.count_success(LAPTOP, "Bearer once")
    limits.check_address("192.0.2.1", "Bearer once")
    limits.count_failure("192.0.2.1", "Bearer once")

    with pytest.raises(RateLimitedError, match="this address"):
        limits.check_address("192.0.2.1", "Bearer once")


def test_whoever_has_a_network_of_ipv6_has_one_bucket(clock: Clock):
    limits = RateLimits(failures=Rate(per_s=0.1, burst=1), clock=clock)
    limits.count_failure("2001:db8:1:2::1")

    with pytest.raises(RateLimitedError):
        limits.check_address("2001:db8:1:2:ffff::9", None)
    limits.check_address("2001:db8:1:3::1", None)


def test_callers_by_ipv4_share_nothing_where_ipv6_is_listened_on(clock: Clock):
    limits = RateLimits(failures=Rate(per_s=0.1, burst=1), clock=clock)
    limits.count_failure("::ffff:192.0.2.1")

    with pytest.raises(RateLimitedError):
        limits.check_address("192.0.2.1", None)
    limits.check_address("::ffff:192.0.2.2", None)


def test_without_rates_nothing_is_refused():
    limits = RateLimits()
    for _ in range(5000):
        limits.check_address("192.0.2.1", None)
        limits.count_failure("192.0.2.1")
        limits.count_success(LAPTOP, "Bearer x")
