"""What cloud-init ignores of user-data: it says so nowhere but in the guest."""

from __future__ import annotations

import codecs
from typing import Final

import yaml

#: What user-data begins with ("User-data formats" of cloud-init's documentation).
_FORMATS = ("#cloud-config", "#!", "#include", "#cloud-boothook", "#part-handler", "## template:")
_CONFIG = "#cloud-config"
_MIME = b"mime-version:"
_GZIP = b"\x1f\x8b"
_MAX_DEPTH: Final = 100  #: each level costs a parser as much as all above it
#: libyaml where PyYAML has it: the same grammar, and 64 KiB take no time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def ignored_reason(content: bytes) -> str | None:
    """Return why cloud-init will ignore user-data, as the end of a sentence; None: it will not."""
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
    """Whether cloud-init knows what it is: by its first line, as MIME, or compressed."""
    text = content.lstrip().lower()
    return text.startswith((_GZIP, *map(str.encode, _FORMATS))) or _MIME in text[:4096]


def _cloud_config_error(content: bytes) -> str | None:
    """Parse YAML, and resolve no alias: few bytes may stand for many."""
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
