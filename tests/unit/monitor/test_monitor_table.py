"""A monitor knows the hosts by what changed, and looks at the files that open them once each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from monitor.host_table import CredentialChecks, HostTable, credential_key, may_keep_connection
from registry import HostCredentialError, HostHealth
from registry.db.ids import uuid7
from registry.hosts import CredentialFiles, HostsRead, WatchedHost


def a_host(name: str = "h", **changes: Any) -> WatchedHost:
    values = {
        "id": uuid7(),
        "name": name,
        "uri": f"qemu+tls://{name}/system",
        "pool": "default",
        "credential": "site",
        "ssh_host_keys": (),
        "health": HostHealth.UP,
    }
    return WatchedHost(**{**values, **changes})


@dataclass
class Register:
    """Tells what it is told to tell, and remembers what it was asked."""

    hosts: tuple[WatchedHost, ...] = ()
    changed: tuple[WatchedHost, ...] = ()
    gone: frozenset[UUID] = frozenset()
    troubled: frozenset[UUID] = frozenset()
    read: list[str] = field(default_factory=list)

    @property
    def watched_hosts(self) -> Register:
        return self

    def all(self) -> HostsRead:
        self.read.append("all")
        return HostsRead(cursor=7, hosts=self.hosts, gone=frozenset())

    def changed_since(self, cursor: int) -> HostsRead:
        self.read.append(f"since {cursor}")
        return HostsRead(cursor=cursor + 1, hosts=self.changed, gone=self.gone)

    def failing_hosts(self) -> frozenset[UUID]:
        return self.troubled


@dataclass
class Files:
    """Credentials whose stamps can be changed; counts how often it was asked."""

    stamp: str = "1"
    wrong: str | None = None
    asked: int = 0

    def find(self, uri: str, name: str | None) -> CredentialFiles | None:
        self.asked += 1
        if self.wrong is not None:
            raise HostCredentialError(name or "-", self.wrong)
        return CredentialFiles(name=name or "-", folder=Path("/x"), stamp=self.stamp)


def a_table(register: Register, clock: list[float]) -> tuple[HostTable, frozenset[UUID]]:
    key = uuid7()
    made: Any = HostTable
    return made(register, key, lambda: clock[0]), frozenset({key})


def test_all_hosts_are_read_once_and_then_what_changed() -> None:
    first, second = a_host("first"), a_host("second")
    register = Register(hosts=(first, second))
    table, alone = a_table(register, [0.0])
    table.find_changed_hosts(alone)

    quiet = table.find_changed_hosts(alone)
    moved = a_host("first", id=first.id, uri="qemu+tls://elsewhere/system")
    register.changed, register.gone = (moved,), frozenset({second.id})
    changed = table.find_changed_hosts(alone)

    assert quiet == set()
    assert changed == {first.id, second.id}
    assert table.hosts == {first.id: moved}
    assert not table.is_polled_here(second.id)
    assert register.read == ["all", "since 7", "since 8"]


def test_now_and_then_all_hosts_are_read_anew() -> None:
    kept, lost = a_host("kept"), a_host("lost")
    register, clock = Register(hosts=(kept, lost)), [0.0]
    table, alone = a_table(register, clock)
    table.find_changed_hosts(alone)

    register.hosts = (kept, new := a_host("new"))  # an older register center was put back
    clock[0] = 3600.0
    changed = table.find_changed_hosts(alone)

    assert changed == {lost.id, new.id}
    assert table.hosts.keys() == {kept.id, new.id}


def test_who_comes_or_goes_among_monitors_is_a_change_of_all_hosts() -> None:
    listed = tuple(a_host(f"h{number}") for number in range(50))
    table, alone = a_table(Register(hosts=listed), [0.0])
    table.find_changed_hosts(alone)

    changed = table.find_changed_hosts(alone | {uuid7()})

    assert changed == {host.id for host in listed}
    assert 0 < sum(table.is_polled_here(host.id) for host in listed) < 50


def test_files_are_looked_at_once_however_many_hosts_they_open() -> None:
    files, listed = Files(), [a_host(f"h{number}") for number in range(100)]
    made: Any = CredentialChecks
    ways = made(files)
    before = [ways.connection_settings(host) for host in listed]

    unchanged = ways.refresh(listed)
    files.stamp = "2"
    changed = ways.refresh(listed)
    after = [ways.connection_settings(host) for host in listed]

    assert files.asked == 3
    assert unchanged == set()
    assert changed == {credential_key(listed[0])}
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_files_in_disorder_open_nothing_new_and_close_nothing() -> None:
    files, host = Files(), a_host()
    made: Any = CredentialChecks
    ways = made(files)
    before = ways.connection_settings(host)

    files.wrong = "clientkey.pem can be read by others"
    ways.refresh([host])
    locked = ways.connection_settings(host)
    files.wrong = None
    ways.refresh([host])

    assert locked.credential is None
    assert "can be read by others" in (locked.locked_out or "")
    assert may_keep_connection(before, locked)
    assert ways.connection_settings(host) == before
