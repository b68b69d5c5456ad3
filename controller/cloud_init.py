"""Finds user-data that cloud-init would ignore: it reports that only inside the guest."""

from __future__ import annotations

import codecs
from typing import Final

import yaml

#: Prefixes of the formats that cloud-init knows ("User-data formats" of its documentation).
_FORMATS = ("#cloud-config", "#!", "#include", "#cloud-boothook", "#part-handler", "## template:")
_CONFIG = "#cloud-config"
_MIME = b"mime-version:"
_GZIP = b"\x1f\x8b"
_MAX_DEPTH: Final = 100  #: of nesting: a parser takes as long for each level as for all above it
#: libyaml's parser if PyYAML was built with it: the same grammar, parsed faster.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def ignored_reason(content: bytes) -> str | None:
    """Return the reason why cloud-init ignores user-data, or None."""
    if content.startswith(codecs.BOM_UTF8) and _has_known_format(
        content.removeprefix(codecs.BOM_UTF8)
    ):
        return "begins with a byte order mark: save it as UTF-8 without one"
    if not _has_known_format(content):
        return f"has none of the first lines that it knows, such as {_CONFIG} or #!/bin/sh"
    first, _, _ = content.lstrip().partition(b"\n")
    if first.strip().decode(errors="replace").lower() == _CONFIG:
        return _cloud_config_error(content)
    return None


def _has_known_format(content: bytes) -> bool:
    """Return whether cloud-init knows the format: by its first line, as MIME, or compressed."""
    text = content.lstrip().lower()
    return text.startswith((_GZIP, *map(str.encode, _FORMATS))) or _MIME in text[:4096]


def _cloud_config_error(content: bytes) -> str | None:
    """Return the error of a cloud-config, or None if it is valid.

    YAML aliases are not resolved, because a few bytes of aliases can expand to gigabytes.
    """
    events, depth = [], 0
    try:
        for event in yaml.parse(content.decode(), Loader=_LOADER):
            events.append(event)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _MAX_DEPTH:
                return f"is nested more than {_MAX_DEPTH} deep"
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark
        where = "" if at is None else f" in line {at.line + 1}, column {at.column + 1}"
        return f"is no YAML{where}"  # its problem may quote a password
    except yaml.YAMLError:
        return "is no YAML"
    starts = [at for at, each in enumerate(events) if isinstance(each, yaml.DocumentStartEvent)]
    if starts and not isinstance(events[starts[0] + 1], yaml.MappingStartEvent):
        return "has no settings at its first level, such as packages: or users:"
    return None
