"""Host names as tenants see them: an alias per tenant instead of the real name.

A tenant's alias of a host is the same in all answers and differs from other tenants' aliases. It
is an HMAC with a secret of the installation: no tenant can derive the real name from it, and two
tenants cannot find out that they share a host. Operators see the real names; so do tenants where
`FUGA_HOST_NAMES` is ``shown``.

Error texts of hosts and workers are shown without everything that identifies a machine:
addresses, URIs, paths and names of hosts. Advice to run a command on a host becomes "ask an
operator".

libvirt, SSH, TLS and QEMU write addresses, names of machines and of users, paths and URIs
into their messages, also of machines that are not hosts of this site, such as a jump host or a
storage server. Callers who may not see these names get the rest of the message.
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

#: Characters of a text that are shown: the cause stands at its beginning.
MAX_TEXT: Final = 4_000
#: Words that are never taken for a machine's own name. Machines choose their names freely: one
#: called `vm` or `running` would be replaced in texts that are not about it.
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
#: What only operators can run, who have a shell on hosts.
_COMMAND_ON_HOST: Final = re.compile(r"`(?:virsh|qemu-img)\b")
_INSTEAD: Final = (
    (_URI, "(its URI)"),
    (_PATH, "(a path)"),
    (_ADDRESS, "(an address)"),
    (_CREDENTIAL, "its credential"),
    (_USER, ""),
)


def remove_addresses(text: str) -> str:
    """Return a text without URIs, paths, addresses and users; a long text is cut."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT].rpartition(" ")[0] + " …"
    text = _SILENT.sub("its host does not answer", text)
    for pattern, instead in _INSTEAD:
        text = pattern.sub(instead, text)
    return text


def remove_operators_advice(text: str) -> str:
    """Return a text without the clause that advises a command on a host, and what follows it."""
    found = _COMMAND_ON_HOST.search(text)
    if found is None:
        return text
    end = max(text.rfind(mark, 0, found.start()) for mark in ":;")
    if end < 0:
        end = max(0, text.rfind(",", 0, found.start()))
    return f"{text[:end]}: ask an operator" if end else "ask an operator"


def remove_machine_names(text: str, known: Callable[[str], bool]) -> str:
    """Return a text without names of machines, found by their form or by the word before them.

    The names of hosts that the reader knows stay.
    """

    def replace_name(found: re.Match[str]) -> str:
        if known(found["name"]):
            return found[0]
        return f"{found.groupdict().get('before') or ''}(a machine)"

    for pattern in _MACHINES:
        text = pattern.sub(replace_name, text)
    return text


#: ``own``: tenants see their own aliases of hosts. ``shown``: they see the real names.
HostNaming = Literal["own", "shown"]

ALIAS_PREFIX: Final = "host-"
_ALIAS_LENGTH: Final = 9  #: 45 bits: among 12,500 hosts a collision is unlikely
#: Tenants whose aliases of all hosts are cached: some 2 MiB each with 12,500 hosts.
_TENANTS_KEPT: Final = 16
#: Machines may change their own names without a change of the change_mark.
_READ_AGAIN_S: Final = 30.0

_WORD: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_UNNAMED: Final = "another host"
_OPERATOR: Final = re.compile(r"\boperator:[a-z0-9][a-z0-9._-]*")


class Identities(Protocol):
    """The reads of the register center that aliases need."""

    def secret(self) -> bytes:
        """Return the secret of the aliases."""

    def change_mark(self) -> object:
        """Return a value that changes whenever a host is added or retired."""

    def all(self) -> Sequence[HostIdentity]:
        """Return every host, including retired ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAlias:
    """A host and a tenant's alias of it."""

    tenant: str
    host: str
    alias: str


@dataclass(frozen=True, slots=True)
class _HostTable:
    """All hosts at the last read, with the words that mean them."""

    change_mark: object
    read_at: float
    names: tuple[str, ...]  #: of hosts that are not retired
    words: Mapping[str, str | None]  #: host name by word in lower case that means it; None: several


class HostNames:
    """Makes tenants' aliases of hosts and resolves them."""

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
        self._meant = functools.lru_cache(maxsize=_TENANTS_KEPT)(self._names_by_alias)

    @classmethod
    def of(cls, registry: Registry, naming: HostNaming = "own") -> HostNames:
        """Create the host names of an installation; nothing is read yet."""
        return cls(lambda: registry.host_identities, naming=naming)

    @functools.cached_property
    def secret(self) -> bytes:
        """The secret of the aliases. It is read once, because it never changes."""
        return self._identities().secret()

    def alias(self, tenant: str, host: str) -> str:
        """Return a tenant's alias of a host: a keyed digest of both names."""
        # Names hold no NUL, so the message is unambiguous.
        digest = hmac.digest(self.secret, f"host\0{tenant}\0{host}".encode(), "sha256")
        text = base64.b32encode(digest[:10]).decode().lower()
        return ALIAS_PREFIX + text[:_ALIAS_LENGTH]

    def resolve_name(self, tenant: str, alias: str) -> str | None:
        """Return the real name of the host with a tenant's alias, or None."""
        known = self._read_hosts()
        return self._meant(tenant, known.names).get(alias)

    def look_up(self, tenant: str, name: str) -> list[tuple[str, str]]:
        """Return real name and alias of hosts that have this name, or this alias of the tenant."""
        candidates = {
            self.resolve_name(tenant, name),
            name if name in self._read_hosts().names else None,
        }
        return [
            (host, self.alias(tenant, host))
            for host in sorted(candidates - {None}, key=str)
            if host
        ]

    def hosts(self) -> Sequence[str]:
        """Return the real names of hosts that are not retired."""
        return self._read_hosts().names

    def words(self) -> Mapping[str, str | None]:
        """Map each lower-case word that texts use for a host to its name, or None if several."""
        return self._read_hosts().words

    def _names_by_alias(self, tenant: str, names: tuple[str, ...]) -> Mapping[str, str]:
        return {self.alias(tenant, name): name for name in names}

    def _read_hosts(self) -> _HostTable:
        """Return all hosts, read again after one was added or retired, or after an interval."""
        identities, now = self._identities(), self._clock()
        change_mark = identities.change_mark()
        with self._lock:
            known = self._known
            fresh = known is not None and known.change_mark == change_mark
            if known is None or not fresh or now - known.read_at > _READ_AGAIN_S:
                hosts = identities.all()
                names = tuple(each.name for each in hosts if not each.retired)
                if known is not None and known.names == names:
                    names = known.names  # the same tuple, so that the alias cache hits
                known = self._known = _HostTable(change_mark, now, names, _hosts_by_word(hosts))
            return known


@dataclass(frozen=True)
class Viewer:
    """The reader of an answer: an operator or a tenant, with its names of hosts."""

    tenant: str | None  #: None: the reader is an operator
    names: HostNames

    @property
    def is_operator(self) -> bool:
        """Whether the reader is an operator, who sees everything."""
        return self.tenant is None

    def host(self, name: str) -> str:
        """Return the reader's name for a host."""
        if self.tenant is None or self.names.shown:
            return name
        return self.names.alias(self.tenant, name)

    def host_or_none(self, name: str | None) -> str | None:
        """Return the reader's name for a host, or None for None."""
        return None if name is None else self.host(name)

    def resolve_name(self, field: str, given: str) -> str:
        """Return the real name of the host that the reader names.

        Raises
        ------
        InvalidError
            If the tenant has no host with this alias. The error is the same for real names of
            hosts, whether or not such a host exists.
        """
        if self.tenant is None or self.names.shown:
            return given
        found = self.names.resolve_name(self.tenant, given)
        if found is None:
            raise UnknownNameError(
                field, "host", given, hint="use the host names that your VMs show"
            )
        return found

    def redact_text(self, text: str) -> str:
        """Return a text; for a tenant, without anything that identifies machines or operators."""
        if self.tenant is None:
            return text
        text = remove_addresses(_OPERATOR.sub("an operator", text))
        text = remove_operators_advice(text)
        if not self.names.shown:  # words that mean a host become the reader's name of it
            text = _WORD.sub(self._shown_word, text)
        return remove_machine_names(text, self._is_readers_name)

    def _is_readers_name(self, name: str) -> bool:
        """Return whether a name is one that the reader may see."""
        shown = self.names.shown and self._host_words.get(name.lower()) is not None
        return shown or name.startswith(ALIAS_PREFIX)

    def redact_text_or_none(self, text: str | None) -> str | None:
        """Redact a text for the reader; return None for None."""
        return None if text is None else self.redact_text(text)

    def own_request(self, named: str | None) -> str | None:
        """Return a request (TENANT/NAME) if it is the reader's own, or for an operator."""
        is_foreign = named is not None and self.tenant not in (None, named.partition("/")[0])
        return None if is_foreign else named

    def actor(self, actor: str) -> str:
        """Return the actor of an event; tenants see only the kind of other actors."""
        if self.tenant is None or actor == f"tenant:{self.tenant}":
            return actor
        return "operator" if actor == "cli" or actor.startswith("operator:") else "fuga"

    @functools.cached_property
    def _host_words(self) -> Mapping[str, str | None]:
        return self.names.words()

    def _shown_word(self, found: re.Match[str]) -> str:
        """Return the reader's name of the host that a word means; other words unchanged."""
        whole = found[0].lower()
        for word in (whole, whole.partition(".")[0]):
            if word in self._host_words:
                host = self._host_words[word]
                return _UNNAMED if host is None else self.host(host)
        return found[0]


def _hosts_by_word(hosts: Sequence[HostIdentity]) -> Mapping[str, str | None]:
    """Map each lower-case word that means a host to its name, or to None if it means several."""
    words: dict[str, str | None] = {}
    for host in hosts:
        for called in (host.hostname, urlsplit(host.uri).hostname):
            whole = (called or "localhost").lower()
            if whole.partition(".")[0] == "localhost" or not whole.strip("0123456789.:abcdef"):
                continue  # `localhost` is any machine; addresses are found by their form
            for word in {whole, whole.partition(".")[0]} - PLAIN_WORDS:
                words[word] = host.name if words.get(word, host.name) == host.name else None
    return words | {host.name.lower(): host.name for host in hosts}
