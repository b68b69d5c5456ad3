"""Removes everything that identifies a machine from error texts.

libvirt, SSH, TLS and QEMU write addresses, names of machines and of users, paths and URIs
into their messages, also of machines that are no hosts of ours: a host to jump through,
a server of storage. Whoever may not know them is told the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

#: Characters of a text that are looked through: what failed is said at its beginning.
MOST: Final = 4_000
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
    if len(text) > MOST:
        text = text[:MOST].rpartition(" ")[0] + " …"
    text = _SILENT.sub("its host does not answer", text)
    for pattern, instead in _INSTEAD:
        text = pattern.sub(instead, text)
    return text


def without_machines(text: str, known: Callable[[str], bool]) -> str:
    """Return a text without names of machines, as far as their form or a word before tells.

    The names of hosts that the reader knows stay.
    """

    def instead(found: re.Match[str]) -> str:
        if known(found["name"]):
            return found[0]
        return f"{found.groupdict().get('before') or ''}(a machine)"

    for pattern in _MACHINES:
        text = pattern.sub(instead, text)
    return text
