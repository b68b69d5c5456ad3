"""What `fuga doctor` finds in the database and in the folder of images, and mends there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controller.settings import ControllerSettings
    from registry import Registry

_ACTOR: Final = "cli"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    about: str
    well: bool
    message: str


def register_findings(
    settings: ControllerSettings, *, hashes: bool, repair: bool
) -> Iterator[Finding]:
    """Look at the database, and at the images if they lie where this machine sees them."""
    from registry import Registry, RegistryError  # noqa: PLC0415 - slow; `--help` needs none

    url = settings.resolved_database_url()
    file = settings.state_dir / "fuga.db"
    if settings.database_url is None and not file.exists():
        yield Finding("database", False, f"{file} is not there: `fuga up` or `fuga db upgrade`")
        return
    try:
        registry = Registry.connect(url)
        try:
            found = list(_looked_at(registry, settings, hashes=hashes, repair=repair))
        finally:
            registry.close()
    except RegistryError as error:
        yield Finding("database", False, str(error))
        return
    except Exception as error:  # any driver's error; the URL may hold a password: not printed
        yield Finding("database", False, f"cannot be read: {type(error).__name__}")
        return
    yield from found


def _looked_at(
    registry: Registry, settings: ControllerSettings, *, hashes: bool, repair: bool
) -> Iterator[Finding]:
    if repair:
        for freed in registry.networks.free_stray_addresses(actor=_ACTOR):
            yield Finding("addresses", True, f"freed: {freed}")
    wrong = registry.check()
    for message in wrong:
        yield Finding("database", False, message)
    if not wrong:
        yield Finding("database", True, "the ledger's sums, addresses and all states agree")
    yield from _images(registry, settings, hashes=hashes, repair=repair)


def _images(
    registry: Registry, settings: ControllerSettings, *, hashes: bool, repair: bool
) -> Iterator[Finding]:
    from registry import check_image_files, remove_strays  # noqa: PLC0415

    store = settings.resolved_image_store()
    if not store.folder.is_dir():
        if registry.images.list(limit=1).items:
            message = (
                f"{store.folder} is not there: look where the API runs, or set FUGA_IMAGE_STORE"
            )
            yield Finding("images", False, message)
        return
    try:
        if repair:
            for removed in remove_strays(registry.images, store):
                yield Finding("images", True, f"deleted: {removed.message}")
        wrong = list(check_image_files(registry.images, store, hashes=hashes))
    except OSError as error:
        yield Finding("images", False, f"{error.filename or store.folder}: {error.strerror}")
        return
    for each in wrong:
        hint = "; `fuga doctor --repair` deletes it" if each.stray is not None else ""
        yield Finding("images", False, f"{each.message}{hint}")
    if not wrong:
        how = "their content is their own" if hashes else "their sizes are right"
        yield Finding("images", True, f"{store.folder} has the files of all images, {how}")
