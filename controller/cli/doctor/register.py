"""What `fuga doctor` checks and repairs in the database and the image store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from controller.cli.doctor.check_result import CheckResult
from controller.session.credentials import UP_NAME_PREFIX
from controller.terminal.name_lists import first_names

if TYPE_CHECKING:
    from controller.settings import ControllerSettings
    from registry import Registry


_ACTOR: Final = "cli"
_ENDS_SOON: Final = timedelta(days=14)
_NAMED: Final = 10
_MAX_LOOKED_AT: Final = 500


def register_findings(
    settings: ControllerSettings, *, hashes: bool, repair: bool, history: bool = False
) -> Iterator[CheckResult]:
    """Check the database, and the images if this machine can see them."""
    from registry import Registry, RegistryError  # noqa: PLC0415 - slow; `--help` needs none

    url = settings.resolved_database_url()
    file = settings.state_dir / "fuga.db"
    if settings.database_url is None and not file.exists():
        yield CheckResult(
            "database", False, f"{file} does not exist; run `fuga up` or `fuga db upgrade`"
        )
        return
    try:
        registry = Registry.connect(url)
        try:
            found = list(
                _database_findings(
                    registry, settings, hashes=hashes, repair=repair, history=history
                )
            )
        finally:
            registry.close()
    except RegistryError as error:
        yield CheckResult("database", False, str(error))
        return
    except Exception as error:  # any driver's error; the URL may hold a password: not printed
        yield CheckResult("database", False, f"cannot be read: {type(error).__name__}")
        return
    yield from found


def _database_findings(
    registry: Registry, settings: ControllerSettings, *, hashes: bool, repair: bool, history: bool
) -> Iterator[CheckResult]:
    """Check the database: ledger, states, names, connections, roles, tokens and images."""
    if repair:
        for freed in registry.networks.free_stray_addresses(actor=_ACTOR):
            yield CheckResult("addresses", True, f"freed: {freed}")
    yield from _unlimited_tenant_findings(registry)
    wrong = registry.check(history=history)
    for message in wrong:
        yield CheckResult("database", False, message)
    if not wrong:
        of = "the states of existing and ended items" if history else "the states of existing items"
        yield CheckResult("database", True, f"the ledger's sums, addresses and {of} agree")
    for kind, name in registry.reserved_names():
        yield CheckResult(
            "names",
            False,
            f"{kind} {name!r} is called like a word of commands, which take it for the word: use"
            " another name for what you make next, and remove this one when it is free",
        )
    yield from _connection_findings(registry)
    yield from _role_findings(registry)
    yield from _token_findings(registry)
    yield from _image_findings(registry, settings, hashes=hashes, repair=repair)


def _connection_findings(registry: Registry) -> Iterator[CheckResult]:
    """Compare the connections of processes with the server's limit."""
    found = registry.connections()
    if found is None:
        return
    hint = (
        f"an API and {found.processes} processes keep up to {found.kept} connections,"
        f" the server allows {found.given}"
    )
    if found.kept > found.given:
        yield CheckResult("database", False, f"{hint}: raise max_connections of PostgreSQL")
    else:
        yield CheckResult("database", True, hint)


def _role_findings(registry: Registry) -> Iterator[CheckResult]:
    """Report processes whose role may change tables, and missing privileges."""
    found = registry.database_roles()
    if found is None:
        return
    if found.lacking:
        yield CheckResult(
            "database",
            False,
            "the role of FUGA_DATABASE_URL lacks privileges"
            f" ({first_names(list(found.lacking), _NAMED)}): run deploy/run-role.sql as a"
            " superuser",
        )
    mighty = [f"{name}, a superuser" for name in found.superusers]
    mighty += [f"{name}, which owns the tables" for name in found.owners]
    if mighty:
        yield CheckResult(
            "database",
            True,
            f"processes log in as {first_names(mighty, _NAMED)}: a role that writes rows alone"
            " (fuga_run of deploy/run-role.sql) keeps one that is taken over from changing tables"
            " and triggers",
            note=True,
        )
    elif not found.lacking:
        yield CheckResult(
            "database", True, f"{first_names(list(found.others), _NAMED)} writes rows and no tables"
        )


def _token_findings(registry: Registry) -> Iterator[CheckResult]:
    """Report operators' tokens that expire soon or never."""
    living = registry.tokens.active_operator_tokens()
    now = registry.now()
    soon = [
        token.name
        for token in living
        if token.expires_at is not None
        and token.expires_at - now < min(_ENDS_SOON, (token.expires_at - token.created_at) / 4)
    ]
    endless = [
        token.name
        for token in living
        # The state folder of `fuga up` holds the database too: its tokens give nothing more away.
        if token.expires_at is None and not token.name.startswith(UP_NAME_PREFIX)
    ]
    if soon:
        yield CheckResult(
            "tokens",
            False,
            f"expire soon: {first_names(soon, _NAMED)}; renew with `fuga token renew NAME`",
        )
    if endless:
        yield CheckResult(
            "tokens",
            True,
            f"operators' tokens that never expire: {first_names(endless, _NAMED)}",
            note=True,
        )


def _signature_findings(registry: Registry, keys: int) -> CheckResult:
    """Report whether images must be signed, and older ones that are not."""
    unsigned = [
        image.reference
        for image in registry.images.list(limit=_MAX_LOOKED_AT).items
        if image.signed_by is None and image.removed_at is None
    ]
    older = f"; older unsigned images: {first_names(unsigned, _NAMED)}" if unsigned else ""
    message = f"must be signed by one of {keys} keys{older}"
    return CheckResult("images", True, message, note=bool(unsigned))


def _image_findings(
    registry: Registry, settings: ControllerSettings, *, hashes: bool, repair: bool
) -> Iterator[CheckResult]:
    """Compare the files of the image store with the images in the database."""
    from registry import SettingsError  # noqa: PLC0415
    from registry.images import check_image_files, remove_strays  # noqa: PLC0415
    from registry.images.qemu_img import qemu_img_path  # noqa: PLC0415

    if qemu_img_path() is None:
        message = (
            "qemu-img (qemu-utils) is not installed here: an API here leaves checks to workers"
        )
        yield CheckResult("images", True, message, note=True)
    try:
        store = settings.resolved_image_store()
    except SettingsError as error:
        yield CheckResult("images", False, str(error))
        return
    if store.keys:
        yield _signature_findings(registry, len(store.keys))
    if not store.folder.is_dir():
        if registry.images.list(limit=1).items:
            message = (
                f"{store.folder} does not exist; run this with the API, or set FUGA_IMAGE_STORE"
            )
            yield CheckResult("images", False, message)
        return
    try:
        if repair:
            for removed in remove_strays(registry.images, store):
                yield CheckResult("images", True, f"deleted: {removed.message}")
        wrong = list(check_image_files(registry.images, store, hashes=hashes))
    except OSError as error:
        yield CheckResult("images", False, f"{error.filename or store.folder}: {error.strerror}")
        return
    for each in wrong:
        hint = "; `fuga doctor --repair` deletes it" if each.stray is not None else ""
        yield CheckResult("images", False, f"{each.message}{hint}")
    if not wrong:
        how = "with correct content" if hashes else "with correct sizes"
        yield CheckResult("images", True, f"{store.folder} has the files of all images, {how}")


def _unlimited_tenant_findings(registry: Registry) -> Iterator[CheckResult]:
    """Report tenants without limits, who could fill queue and database."""
    names = registry.quotas.unlimited_tenants()
    if names:
        some = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
        message = f"{len(names)} tenants have no limits: {some}; set them with `fuga quota set`"
        yield CheckResult("quotas", True, message, note=True)
