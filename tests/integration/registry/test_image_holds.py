"""Images that hosts do not survive are held back; images that were only near are not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from registry import HostAdminEvent, HostHealth, NotFoundError, Registry
from registry.hosts import Host
from registry.images import Image
from registry.tasks import Upload
from tests.integration.registry.test_images import add_image
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, a_report, add_request, now, place, take_lease


class Site:
    """Hosts, an image that VMs on all of them want, and workers that bring it."""

    def __init__(self, registry: Registry, hosts: int) -> None:
        self.registry = registry
        self.hosts = {host.name: host for host in a_cluster(registry, hosts)}
        self.image = add_image(registry)
        self.lease = take_lease(registry)

    def want(self, *names: str) -> None:
        for name in names:
            request = add_request(self.registry, image=self.image.reference)
            place(self.registry, request, self.hosts[name], lease=self.lease)

    def copy_of(self, name: str) -> UUID:
        copies = self.registry.images.copies(self.image.reference)
        return next(each.id for each in copies if each.host == name)

    def claim(self, name: str) -> Upload | None:
        return self.registry.image_copies.claim_upload(self.copy_of(name), f"w-{name}", 60)

    def begin(self, name: str) -> Upload:
        upload = self.claim(name)
        assert upload is not None, f"{name} gets no image"
        self.registry.image_copies.record_volume(upload.claim, upload.volume)
        return upload

    def bring(self, name: str) -> None:
        self.registry.image_copies.finish_upload(self.begin(name).claim)

    def answer(self, name: str) -> None:
        report = a_report(hostname=name, volumes=self.volumes(name), started_at=now())
        self.registry.hosts.record_report(self.hosts[name].id, report)

    def volumes(self, name: str) -> tuple[str, ...]:
        return tuple(f"fuga-image-{self.copy_of(name)}.{n}.qcow2" for n in range(1, 4))

    def miss(self, *names: str, times: int = 1) -> None:
        for _ in range(times):
            for name in names:
                self.registry.hosts.record_miss(
                    self.hosts[name].id, "no answer", unreachable_after=2, down_after=4
                )

    def lose(self, *names: str) -> None:
        self.miss(*names, times=2)

    def pool_hangs(self, name: str) -> None:
        """The host answers; its pool was asked in vain for a while."""
        began = now()
        report = replace(
            a_report(hostname=name, started_at=began),
            polled_at=began + timedelta(seconds=20),
            pool_silent_since=began,
        )
        self.registry.hosts.record_report(self.hosts[name].id, report)

    def hang(self, name: str) -> None:
        """Bring the image to a host that answers no more: its worker gives up."""
        upload = self.begin(name)
        self.lose(name)
        self.registry.image_copies.retry_upload(upload.claim, f"host {name} does not answer")

    def told(self) -> Image:
        return self.registry.images.get(self.image.reference)

    def due(self) -> list[UUID]:
        found = self.registry.assignments.send_due_tasks(limit=100, resend_after_s=0)
        return [each.id for each in found if each.task == "workers.upload_image"]


@pytest.fixture
def site(register: Registry) -> Site:
    return Site(register, 6)


def test_an_image_that_takes_host_after_host_takes_two(site: Site) -> None:
    site.want("h1", "h2", "h3", "h4")
    site.hang("h1")
    assert site.told().held_at is None

    site.hang("h2")

    shown = site.told()
    assert shown.held_at is not None
    assert shown.held_reason == (
        "2 hosts, or their pools, stopped answering while it was brought to them: h1, h2"
    )
    assert site.claim("h3") is None
    assert site.claim("h4") is None
    assert site.due() == []
    assert site.registry.fleet().images_held == 1
    events = site.registry.events.list(subject_id=str(shown.id))
    assert [each.reason for each in events if each.kind == "image_held"] == [shown.held_reason]


def test_an_image_that_nobody_has_goes_to_two_hosts_at_a_time(site: Site) -> None:
    site.want("h1", "h2", "h3", "h4")
    first = site.begin("h1")
    site.begin("h2")
    assert site.claim("h3") is None

    site.registry.image_copies.finish_upload(first.claim)

    assert site.claim("h3") is not None
    assert site.claim("h4") is not None


def test_a_worker_that_stopped_between_leaves_room_for_others(site: Site) -> None:
    site.want("h1", "h2", "h3")
    for name in ("h1", "h2"):
        site.registry.image_copies.retry_upload(site.begin(name).claim, None)

    assert site.claim("h3") is not None


def test_pools_that_hang_with_it_count_as_hosts_do(site: Site) -> None:
    site.want("h1", "h2", "h3")
    site.begin("h1")
    site.pool_hangs("h1")
    site.bring("h2")

    site.pool_hangs("h2")

    assert site.registry.hosts.get("h2").health == HostHealth.UP
    assert "or their pools, stopped answering" in (site.told().held_reason or "")
    assert site.claim("h3") is None


def test_what_came_whole_and_then_silenced_its_host_counts(site: Site) -> None:
    site.want("h1", "h2", "h3")
    site.bring("h1")
    site.bring("h2")

    site.lose("h1", "h2")

    assert "h1, h2" in (site.told().held_reason or "")
    assert site.claim("h3") is None


def test_hosts_that_answered_with_it_since_clear_it(site: Site, raw: RawSql) -> None:
    site.want("h1", "h2", "h3")
    for name in ("h1", "h2"):
        site.bring(name)
        raw.run("UPDATE image_copies SET present_at = created_at")  # a moment ago
        site.answer(name)

    site.lose("h1", "h2")

    assert site.told().held_at is None


def test_the_first_vms_of_it_count_where_they_are_built(site: Site, raw: RawSql) -> None:
    site.want("h1", "h2")
    for name in ("h1", "h2"):
        site.bring(name)
        raw.run("UPDATE image_copies SET present_at = created_at")
        site.answer(name)
    for due in site.registry.assignments.send_due_tasks(limit=100, resend_after_s=0):
        assert site.registry.assignments.claim_build(due.id, "w1", 60) is not None

    site.lose("h1", "h2")

    assert site.told().held_at is not None


def test_an_outage_of_a_rack_holds_no_image_that_was_on_its_way(site: Site) -> None:
    site.want("h1", "h2", "h6")
    site.begin("h1")
    site.begin("h2")

    # The others have missed a look as well, though they count as up still.
    site.miss("h1", "h2", "h3", "h4", "h5")
    site.miss("h1", "h2")

    assert site.registry.hosts.get("h1").health == HostHealth.UNREACHABLE
    assert site.registry.hosts.get("h3").health == HostHealth.UP
    assert site.told().held_at is None


def test_hosts_lost_long_ago_do_not_count(site: Site, raw: RawSql) -> None:
    site.want("h1", "h2")
    site.hang("h1")
    long_ago = (now() - timedelta(hours=2)).isoformat(sep=" ")
    raw.run(f"UPDATE image_copies SET host_lost_at = '{long_ago}' WHERE host_lost_at IS NOT NULL")

    site.hang("h2")

    assert site.told().held_at is None


def test_hosts_lost_long_ago_are_not_in_an_images_way(site: Site, raw: RawSql) -> None:
    site.want("h1", "h2", "h3")
    for name in ("h1", "h2"):
        site.hang(name)
        long_ago = (now() - timedelta(hours=2)).isoformat(sep=" ")
        raw.run(
            f"UPDATE image_copies SET host_lost_at = '{long_ago}' WHERE host_lost_at IS NOT NULL"
        )
    assert site.told().held_at is None

    assert site.claim("h3") is not None


def test_a_host_that_was_removed_is_not_in_an_images_way(site: Site) -> None:
    site.want("h1", "h2", "h3")
    site.hang("h1")
    site.begin("h2")
    assert site.claim("h3") is None

    site.miss("h1", times=4)
    site.registry.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)

    assert site.claim("h3") is not None


def test_an_image_in_wide_use_is_not_held_for_a_few(register: Registry, raw: RawSql) -> None:
    site = Site(register, 8)
    names = [f"h{number}" for number in range(1, 9)]
    site.want(*names)
    for name in names[:6]:
        site.bring(name)
    raw.run("UPDATE image_copies SET present_at = created_at WHERE present_at IS NOT NULL")
    for name in names[:6]:
        site.answer(name)

    site.hang("h7")
    site.hang("h8")

    assert site.told().held_at is None


def test_requests_of_a_held_image_wait_and_say_so(site: Site) -> None:
    site.want("h1", "h2")
    site.hang("h1")
    site.hang("h2")
    waiting = add_request(site.registry, 3, image="debian")
    other = add_request(site.registry)

    view = site.registry.rounds.read_cluster(site.lease)

    found = {request.id: request for request in view.requests}
    assert found[waiting.id].shut_out
    assert set(found[waiting.id].avoid) == {host.id for host in view.hosts}
    short = found[waiting.id].short
    assert short is not None
    assert (short.reason, short.count, dict(short.detail)) == (
        "image_held", 3, {"image": "debian:1"}
    )  # fmt: skip
    assert not found[other.id].shut_out


def test_an_operator_releases_it_and_all_is_as_before(site: Site) -> None:
    site.want("h1", "h2", "h3")
    site.hang("h1")
    site.hang("h2")

    released = site.registry.images.release("debian", actor=ACTOR)

    assert (released.held_at, released.held_reason) == (None, None)
    assert site.registry.images.release("debian", actor=ACTOR) == released
    assert site.copy_of("h3") in site.due()
    site.answer("h1")
    site.answer("h2")
    assert site.claim("h3") is not None
    events = site.registry.events.list(subject_id=str(released.id))
    assert [each.actor for each in events if each.kind == "image_released"] == [ACTOR]
    with pytest.raises(NotFoundError):
        site.registry.images.release("none", actor=ACTOR)


def test_a_host_that_nobody_ever_reached_holds_nothing(site: Site) -> None:
    host: Host = site.hosts["h6"]

    site.lose("h6")

    assert site.registry.hosts.get(host.name).health == HostHealth.UNREACHABLE
    assert site.told().held_at is None
