"""Hosts that are cut off, frozen, powered off or full, and guests that hang."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from lab.errors import LabError
from tests.chaos.faults.fault import ChaosFault
from tests.chaos.site import SiteHost
from tests.servers.running import TimedOutError
from tests.servers.small_disks import SmallDisk


class OnHost(ChaosFault):
    """Strikes a host; how far the monitor counts before it ends is drawn.

    One that is down and whose VMs are to be replaced stays struck until it was fenced.
    """

    strikes = ("host",)
    strike: ClassVar[str]
    mend: ClassVar[tuple[str, ...]]
    healths: ClassVar[tuple[str, ...]] = ("unreachable", "down")

    def inject(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.choose()
        until = self.rng.choice(self.healths)
        self.site.fault(self.host, self.strike)
        self.site.eventually(lambda: self.keep_struck() or self.seen(until))
        shown |= {"host": self.host.name, "until": until}
        if self.host.is_replaced and until == "down":
            try:
                self.site.eventually(
                    lambda: self.keep_struck() or self.site.is_fenced_or_empty(self.host)
                )
            except TimedOutError as error:
                error.add_note(self.site.why_not_fenced(self.host))
                raise
            shown["fenced"] = self.site.is_fenced(self.host)
        return shown

    def choose(self) -> dict[str, Any]:
        """Choose the host; return what else is to be noted."""
        names = [host.name for host in self.hosts()]
        self.host = self.site.eventually(lambda: self.site.take(self.rng.choice(names), self))
        return {}

    def hosts(self) -> list[SiteHost]:
        return self.site.hosts

    def keep_struck(self) -> None:
        """Strike again where the end of another fault may have mended this one."""

    def seen(self, until: str) -> bool:
        rows = self.site.tried_sql("SELECT health FROM hosts WHERE name = %s", self.host.name)
        return rows in ([(until,)], [("down",)])

    def lift(self) -> None:
        self.site.mend(self.host, *self.mend)


class NetworkCut(OnHost):
    kind = "network to a host cut"
    strike = "cut-network"
    mend = ("restore-network",)


class NetworkCutUntilFenced(NetworkCut):
    """Its guests run on, out of everybody's reach, until it is switched off."""

    kind = "network to a host cut until it is fenced"
    healths = ("down",)

    def hosts(self) -> list[SiteHost]:
        return [host for host in self.site.hosts if host.is_replaced]


class DaemonKilled(OnHost):
    kind = "libvirtd killed"
    strike = "kill-daemon"
    mend = ("restart-daemon",)


class DaemonFrozen(OnHost):
    kind = "libvirtd frozen"
    strike = "hang-daemon"
    mend = ("resume-daemon",)


class PoweredOff(OnHost):
    strike = "power-off"

    def keep_struck(self) -> None:
        """Switch it off again: the end of another fault starts all hosts that are off."""
        self.site.keep_off(self.host)

    def lift(self) -> None:
        self.site.start_hosts()


class HostPowered(PoweredOff):
    kind = "host powered off and on"


class HostDoubled(ChaosFault):
    """An operator registers a machine again, by another spelling of its address."""

    kind = "host registered twice"
    strikes = ("registration",)

    def inject(self) -> dict[str, Any]:
        host = self.rng.choice(self.site.hosts)
        self.twin = f"twin-{self.rng.getrandbits(32):08x}"
        answer = self.site.add_twin(host, self.twin)
        if answer.status_code == 202:
            self.hold(10, 20)
        states = self.site.tried_sql(
            "SELECT health FROM hosts WHERE name = %s AND admin <> 'retired'", self.twin
        )
        return {"host": host.name, "twin": self.twin, "counts": states == [("up",)]}

    def lift(self) -> None:
        self.site.eventually(lambda: self.site.retire(self.twin))


class GuestFrozen(ChaosFault):
    kind = "qemu frozen"
    strikes = ("guest",)

    def inject(self) -> dict[str, Any]:
        host, self.guest = self.site.eventually(self.choose)
        self.host = next(each for each in self.site.hosts if each.name == host)
        self.hold(4, 10)
        return {"host": host, "domain": self.guest}

    def choose(self) -> tuple[str, str] | None:
        rows = self.site.sql(
            "SELECT h.name, v.id FROM vms v JOIN assignments a ON a.vm_id = v.id "
            "JOIN hosts h ON h.id = a.host_id WHERE a.state = 'active' "
            "AND v.observed = 'running' ORDER BY v.id"
        )
        if not rows:
            return None
        host, vm = self.rng.choice(rows)
        number = next(each for each in self.site.hosts if each.name == host)
        try:
            self.site.fault(number, "freeze-guest", f"fuga-{vm}")
        except LabError:
            return None  # it was deleted just now
        return str(host), f"fuga-{vm}"

    def lift(self) -> None:
        with contextlib.suppress(LabError):  # it was deleted meanwhile
            self.site.fault(self.host, "thaw-guest", self.guest)


class PoolFull(ChaosFault):
    """Until a build failed there, or none was tried for a while."""

    kind = "pool full"
    strikes = ("pool",)

    def inject(self) -> dict[str, Any]:
        self.host = self.site.eventually(self.last_built_on)
        since = self.site.sql("SELECT coalesce(max(id), 0) FROM events")[0][0]
        SmallDisk(self.host.pool_dir).fill()
        try:
            self.site.eventually(
                lambda: self.site.sql(
                    "SELECT 1 FROM events WHERE id > %s AND kind = 'assignment_state' "
                    "AND event = 'failed' AND data ->> 'host' = %s "
                    "AND reason LIKE '%%space%%' LIMIT 1",
                    since,
                    self.host.name,
                ),
                within_s=40,
            )
        except TimedOutError:
            return {"host": self.host.name, "failed_builds": 0}
        return {"host": self.host.name, "failed_builds": 1}

    def last_built_on(self) -> SiteHost | None:
        """Return the host that a policy which fills one after another is likely to fill next."""
        rows = self.site.sql(
            "SELECT h.name FROM assignments a JOIN hosts h ON h.id = a.host_id"
            " ORDER BY a.id DESC LIMIT 1"
        )
        return next((each for each in self.site.hosts if [(each.name,)] == rows), None)

    def lift(self) -> None:
        SmallDisk(self.host.pool_dir).free()
