"""The names by which callers know hosts.

A tenant knows a host by a name of its own: the same in all answers, another one for
each tenant, and made with a secret of the installation, so that no tenant finds the host's
real name by it, and no two tenants find out that they share a host. Operators know hosts
by their names; so do tenants where `FUGA_HOST_NAMES` is ``shown``.

What hosts and workers wrote about a failure is shown without whatever says which machine
it was: addresses, URIs, paths and names of hosts.

Removes everything that identifies a machine from error texts.

libvirt, SSH, TLS and QEMU write addresses, names of machines and of users, paths and URIs
into their messages, also of machines that are no hosts of ours: a host to jump through,
a storage server. Callers who may not see these names get the rest of the message.
"""

from __future__ import annotations

import base64
import functools
import hmac
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from registry import Registry, UnknownNameError
from registry.hosts import HostIdentity

#: Characters of a text that are looked through: what failed is said at its beginning.
MAX_TEXT: Final = 4_000
#: What a machine calls itself is no name where texts mean something else by it. Machines choose
#: freely: one called `vm` or `running` would be named in texts that are about no machine.
PLAIN_WORDS: Final = frozenset(
    re.findall(
        r"[a-z]+",
        """
    a after all an and another any are as at be been before began build but by cannot central
    cloud cpu default did disk does down due end ended ends error failed fits for free from
    full gone guest had has have held host hosts if image in is it its kept kvm least less
    libvirt lives longer machine many may memory more move moves moved needs network no node not
    nothing of off on once one only operator or out paused placed plan pool qemu quota refused
    request requests reservation room round runs running server site so spot started state still
    stopped storage takes tenant than that the their there these they this time to too up
    vcpus virtual vm vms waits was were what when where which while will with without work
    would yet
    """,
    )
)
_URI: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]*[^\s'\".,:;)]", re.IGNORECASE)
_SILENT: Final = re.compile(rf"{_URI.pattern} does not answer", re.IGNORECASE)
_PATH: Final = re.compile(r"(?<![\w./])/[\w.@+:-]+(?:/[\w.@+:-]*)*(?<![:.])")
_ADDRESS: Final = re.compile(
    r"\[[0-9a-f:.]*:[0-9a-f:.]*(?:%\w+)?\](?::\d+)?"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d+)?\b"
    r"|(?<![\w:])[0-9a-f:]*::[0-9a-f:.]*(?<!:)(?:%\w+)?(?:/\d+)?(?!\w)"
    r"|(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}(?:%\w+)?(?![\w:])",
    re.IGNORECASE,
)
_CREDENTIAL: Final = re.compile(r"\bcredential [A-Za-z0-9._-]+")
_USER: Final = re.compile(r"(?<![\w.@-])[\w.-]+@(?=[\w(\[])")
_NAME: Final = r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)"
_MACHINES: Final = (
    # By its name and port: neither a time nor a revision of an image.
    re.compile(rf"(?<![\w.:/-])(?=[^\s:]*[A-Za-z]){_NAME}(?P<after>:\d{{3,5}})(?![\w:])"),
    # Of three parts, the last of letters: files have no more than two as a rule.
    re.compile(
        r"(?<![\w.:/-])(?P<name>[A-Za-z0-9][\w-]*(?:\.[A-Za-z0-9][\w-]*)+\.[A-Za-z]{2,24})(?![\w-])"
    ),
    # After what SSH, TLS and resolvers write before a name.
    re.compile(
        r"(?P<before>\b(?:hostname|server at|connect to host|known by the name"
        r"|host key for|key for host|resolve(?: address| host)?|lookup of|Connection to"
        r"|Connection (?:closed|reset) by(?: remote host)?)\s+['\"]?)"
        r"(?!(?:the|a|an|its|is|was|hostname|address|peer|failed|remote|server|host|socket|another)\b)"
        + _NAME,
        re.IGNORECASE,
    ),
)
_INSTEAD: Final = (
    (_URI, "(its URI)"),
    (_PATH, "(a path)"),
    (_ADDRESS, "(an address)"),
    (_CREDENTIAL, "its credential"),
    (_USER, ""),
)


def without_places(text: str) -> str:
    """Return a text, or the beginning of a long one, without URIs, paths, addresses, users."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT].rpartition(" ")[0] + " …"
    text = _SILENT.sub("its host does not answer", text)
    for pattern, instead in _INSTEAD:
        text = pattern.sub(instead, text)
    return text


def without_machines(text: str, known: Callable[[str], bool]) -> str:
    """Return a text without names of machines, as far as their form or a word before shows them.

    The names of hosts that the reader knows stay.
    """

    def instead(found: re.Match[str]) -> str:
        if known(found["name"]):
            return found[0]
        return f"{found.groupdict().get('before') or ''}(a machine)"

    for pattern in _MACHINES:
        text = pattern.sub(instead, text)
    return text


#: ``own``: each tenant has a name of its own for each host. ``shown``: the hosts' names.
HostNaming = Literal["own", "shown"]

ALIAS_PREFIX: Final = "host-"
_ALIAS_LENGTH: Final = 9  #: 45 bits: of 12,500 hosts no two meet
#: Tenants whose names of all hosts are kept: of 12,500 hosts some 2 MiB each.
_TENANTS_KEPT: Final = 16
#: What machines call themselves may change without a host being added.
_READ_AGAIN_S: Final = 30.0

_WORD: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_UNNAMED: Final = "another host"
_OPERATOR: Final = re.compile(r"\boperator:[a-z0-9][a-z0-9._-]*")


class Identities(Protocol):
    """The reads of the register center that aliases need."""

    def secret(self) -> bytes:
        """Return the secret for names."""

    def tally(self) -> object:
        """Return what is another as soon as a host was added or retired."""

    def all(self) -> Sequence[HostIdentity]:
        """Return every host that ever was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAlias:
    """A host, and what a tenant calls it."""

    tenant: str
    host: str
    alias: str


@dataclass(frozen=True, slots=True)
class _HostTable:
    """All hosts as they were read."""

    tally: object
    read_at: float
    names: tuple[str, ...]  #: of those that are not retired
    words: Mapping[str, str | None]  #: what a host is called, in small letters: its name


class HostNames:
    """Makes names of hosts for tenants, and finds the hosts that they mean."""

    def __init__(
        self,
        identities: Callable[[], Identities],
        *,
        naming: HostNaming = "own",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shown = naming == "shown"
        self._identities = identities
        self._clock = clock
        self._lock = threading.Lock()
        self._known: _HostTable | None = None
        self._meant = functools.lru_cache(maxsize=_TENANTS_KEPT)(self._by_alias)

    @classmethod
    def of(cls, registry: Registry, naming: HostNaming = "own") -> HostNames:
        """Return the names of an installation; nothing is read yet."""
        return cls(lambda: registry.host_identities, naming=naming)

    @functools.cached_property
    def secret(self) -> bytes:
        """What names are made with, read once: it never changes."""
        return self._identities().secret()

    def alias(self, tenant: str, host: str) -> str:
        """Return the name by which a tenant knows a host. Names hold no NUL."""
        digest = hmac.digest(self.secret, f"host\0{tenant}\0{host}".encode(), "sha256")
        text = base64.b32encode(digest[:10]).decode().lower()
        return ALIAS_PREFIX + text[:_ALIAS_LENGTH]

    def resolve_name(self, tenant: str, alias: str) -> str | None:
        """Return the host that a tenant means; None: it means none."""
        known = self._read()
        return self._meant(tenant, known.names).get(alias)

    def look_up(self, tenant: str, name: str) -> list[tuple[str, str]]:
        """Return the hosts that a name may mean, a tenant's or the host's own, with the former."""
        candidates = {self.resolve_name(tenant, name), name if name in self._read().names else None}
        return [
            (host, self.alias(tenant, host))
            for host in sorted(candidates - {None}, key=str)
            if host
        ]

    def hosts(self) -> Sequence[str]:
        """Return the hosts' own names, which operators know; not of those that are retired."""
        return self._read().names

    def words(self) -> Mapping[str, str | None]:
        """Return by which words texts speak of hosts: in small letters, None for several."""
        return self._read().words

    def _by_alias(self, tenant: str, names: tuple[str, ...]) -> Mapping[str, str]:
        return {self.alias(tenant, name): name for name in names}

    def _read(self) -> _HostTable:
        identities, now = self._identities(), self._clock()
        tally = identities.tally()
        with self._lock:
            known = self._known
            fresh = known is not None and known.tally == tally
            if known is None or not fresh or now - known.read_at > _READ_AGAIN_S:
                hosts = identities.all()
                names = tuple(each.name for each in hosts if not each.retired)
                if known is not None and known.names == names:
                    names = known.names  # the same tuple: what was made of it is found again
                known = self._known = _HostTable(tally, now, names, _hosts_by_word(hosts))
            return known


@dataclass(frozen=True)
class Viewer:
    """The reader of one call, and its names for hosts."""

    tenant: str | None  #: None: an operator
    names: HostNames

    @property
    def is_operator(self) -> bool:
        """Whether this reader sees everything."""
        return self.tenant is None

    def host(self, name: str) -> str:
        """Return the reader's name for a host."""
        if self.tenant is None or self.names.shown:
            return name
        return self.names.alias(self.tenant, name)

    def host_or_none(self, name: str | None) -> str | None:
        """Return the reader's name for a host, if there is one."""
        return None if name is None else self.host(name)

    def resolve_name(self, field: str, given: str) -> str:
        """Return the host that the reader means.

        Raises
        ------
        InvalidError
            If it means none. A host's real name means none to a tenant, and the answer is
            the same whether there is such a host.
        """
        if self.tenant is None or self.names.shown:
            return given
        found = self.names.resolve_name(self.tenant, given)
        if found is None:
            raise UnknownNameError(
                field, "host", given, hint="use the host names that your VMs show"
            )
        return found

    def text(self, text: str) -> str:
        """Return a text without anything that identifies a machine or an operator."""
        if self.tenant is None:
            return text
        text = without_places(_OPERATOR.sub("an operator", text))
        if not self.names.shown:  # what is a host's goes by the reader's name for it
            text = _WORD.sub(self._shown_word, text)
        return without_machines(text, self._is_readers_name)

    def _is_readers_name(self, name: str) -> bool:
        """Whether it is the reader's name for a host, or for hosts that are not its business."""
        shown = self.names.shown and self._words.get(name.lower()) is not None
        return shown or name.startswith(ALIAS_PREFIX)

    def text_or_none(self, text: str | None) -> str | None:
        """Return such a text, if there is one."""
        return None if text is None else self.text(text)

    def own_request(self, named: str | None) -> str | None:
        """Return a request, TENANT/NAME, if the reader may know of it."""
        theirs = named is not None and self.tenant not in (None, named.partition("/")[0])
        return None if theirs else named

    def actor(self, actor: str) -> str:
        """Return who did something: a tenant itself, an operator, or fuga."""
        if self.tenant is None or actor == f"tenant:{self.tenant}":
            return actor
        return "operator" if actor == "cli" or actor.startswith("operator:") else "fuga"

    @functools.cached_property
    def _words(self) -> Mapping[str, str | None]:
        return self.names.words()

    def _shown_word(self, found: re.Match[str]) -> str:
        whole = found[0].lower()
        for word in (whole, whole.partition(".")[0]):
            if word in self._words:
                host = self._words[word]
                return _UNNAMED if host is None else self.host(host)
        return found[0]


def _hosts_by_word(hosts: Sequence[HostIdentity]) -> Mapping[str, str | None]:
    """Return by what hosts are called; None of what several are called."""
    words: dict[str, str | None] = {}
    for host in hosts:
        for called in (host.hostname, urlsplit(host.uri).hostname):
            whole = (called or "localhost").lower()
            if whole.partition(".")[0] == "localhost" or not whole.strip("0123456789.:abcdef"):
                continue  # of any machine; and addresses are found by their form
            for word in {whole, whole.partition(".")[0]} - PLAIN_WORDS:
                words[word] = host.name if words.get(word, host.name) == host.name else None
    return words | {host.name.lower(): host.name for host in hosts}
