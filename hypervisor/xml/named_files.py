"""Files that a domain's definition names, wherever in it.

In addition to disks, these are kernels, firmware and its variables, the targets of block copies,
data files, the memory and the disks of snapshots, and arguments that are passed on to QEMU.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import unquote

from hypervisor.xml import backing_names

#: Elements that are written for people, or for other programs.
_PROSE: Final = frozenset({"metadata", "title", "description"})
_DISKS: Final = frozenset({"disk", "mirror"})
_PIECES: Final = re.compile(r"[,;:?&=\"'\s]")


def disks_in(document: ET.Element) -> Iterator[ET.Element]:
    """Yield all disks of a definition, with those of its snapshots and the targets of copies."""
    return (each for each in document.iter() if each.tag in _DISKS)


def names_any(document: ET.Element, names: Collection[str]) -> bool:
    """Return whether a definition contains one of these file names.

    A longer name that contains one of them does not count.
    """
    pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w.-])")
    text = "\n".join(_strings_in(document))
    return any(map(pattern.search, (text, unquote(text))))


def paths_in(document: ET.Element) -> Iterator[str]:
    """Yield the normalized absolute paths that a definition contains."""
    for text in _strings_in(document):
        if "/" in text:
            for each in (*backing_names.possible_files(text, ""), *_PIECES.split(unquote(text))):
                if each.startswith("/"):
                    yield backing_names.normalized_path(each)


def _strings_in(element: ET.Element) -> Iterator[str]:
    if element.tag in _PROSE:
        return
    yield from element.attrib.values()
    if element.text and (text := element.text.strip()):
        yield text
    for each in element:
        yield from _strings_in(each)
