"""`fuga image`: the disk images that VMs start from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import ApiProblemError, BadInputError, CliError, WaitExpiredError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import time_since

app = typer.Typer(
    name="image", no_args_is_help=True, help="Disk images that VMs start from (operators add them)."
)

ReferenceArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME[:REVISION]", help="Image (see `fuga image list`); NAME alone: the newest"
    ),
]
_QCOW2_MAGIC: Final = b"QFI\xfb"
_MAX_SIGNATURE_BYTES: Final = 4096


class ImageFormatOption(StrEnum):
    """The format of an image file."""

    QCOW2 = "qcow2"
    RAW = "raw"


class SeedKind(StrEnum):
    """How a guest receives its name, keys and address."""

    NONE = "none"
    NOCLOUD = "nocloud"


def size_text(bytes_: int | None) -> str:
    """Return a size as text, such as ``1.5 GiB``."""
    if bytes_ is None:
        return "-"
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= length:
            return f"{bytes_ / length:.1f} {unit}"
    return f"{bytes_} B"


def image_reference(image: Mapping[str, Any]) -> str:
    """Return an image's name and revision."""
    return f"{image['name']}:{image['revision']}"


def image_state(image: Mapping[str, Any]) -> str:
    """Return an image's state, with the progress of an import."""
    if image.get("held_at") is not None:
        return "held"
    if image["state"] == "importing" and image["received_bytes"]:
        return f"importing, {size_text(image['received_bytes'])} so far"
    return str(image["state"])


_COLUMNS: Final = (
    Column("image", image_reference),
    Column("state", image_state),
    field("format"),
    Column("file", lambda row: size_text(row["size_bytes"]), right=True),
    Column("disk", lambda row: size_text(row["virtual_size_bytes"]), right=True),
    field("min_memory_mib", "min memory mib", right=True),
    field("seed_kind", "seed"),
    Column("age", lambda row: time_since(row.get("created_at")), right=True),
    Column("last error", lambda row: row.get("held_reason") or row.get("last_error")),
)
_COPY_COLUMNS: Final = (
    field("host"),
    field("state"),
    Column(
        "uploaded", lambda row: _percent_done(row["uploaded_bytes"], row["size_bytes"]), right=True
    ),
    field("attempts", right=True),
    field("disk_gib", "disk gib", right=True),
    Column("last error", lambda row: row.get("last_error")),
)


def _percent_done(done: int, whole: int) -> str:
    return f"{100 * done // max(1, whole)} %"


@app.command("list")
@list_command
def list_(
    session: Session,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include removed, replaced ones")
    ] = False,
) -> None:
    """List images, every revision; failed ones until a newer one is ready."""
    rows = session.api.items("images", include_removed="true" if everything else None)
    session.show(rows, _COLUMNS, empty="no images. Add one with `fuga image add NAME FILE`.")


@app.command()
@pass_session
def show(session: Session, image: ReferenceArgument) -> None:
    """Show an image and, to operators, its copies on hosts."""
    found = session.api.get(f"images/{image}")
    copies = _read_copies(session, found)
    if session.json:
        print_json(found if copies is None else {**found, "copies": copies})
        return
    print_table(_COLUMNS, [found], empty="")
    echo(f"SHA-256 {found['sha256']}")
    if found["source"] is not None:
        echo(f"from    {found['source']}")
    if found.get("signed_by") is not None:
        echo(f"signed  by {found['signed_by']}")
    if copies is not None:
        echo("")
        print_table(
            _COPY_COLUMNS, copies, empty="on no host yet: hosts receive it when VMs need it"
        )


def _read_copies(session: Session, image: Mapping[str, Any]) -> list[Any] | None:
    try:
        items: list[Any] = session.api.get(f"images/{image_reference(image)}/copies")["items"]
    except ApiProblemError as problem:
        if problem.http_status == 403:
            return None
        raise
    return items


@app.command()
@pass_session
def add(
    session: Session,
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Image name; an existing name gets a new revision")
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Local image file to upload")
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="URL that a worker downloads; FUGA_IMAGE_URLS must allow it",
        ),
    ] = None,
    image_format: Annotated[
        ImageFormatOption | None, typer.Option("--format", help="Image format (default: detected)")
    ] = None,
    seed: Annotated[
        SeedKind, typer.Option(help="How guests receive name, keys and address")
    ] = SeedKind.NONE,
    min_memory: Annotated[
        int, typer.Option(metavar="MIB", help="Minimum memory of a VM", min=0)
    ] = 0,
    sha256: Annotated[str | None, typer.Option(metavar="HEX", help="Expected SHA-256")] = None,
    signature: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Signature by minisign or `cosign sign-blob`"),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Maximum seconds to wait for --from", min=0, metavar="S")
    ] = 3600,
) -> None:
    """Add an image, or a new revision of an existing one."""
    said: dict[str, Any] = {"name": name, "seed_kind": seed.value, "min_memory_mib": min_memory}
    if sha256 is not None:
        said["sha256"] = sha256.lower()
    if signature is not None:
        said["signature"] = _read_signature(signature)
    if (file is None) == (origin is None):
        raise BadInputError("give either FILE or --from URL")
    if file is None:
        if sha256 is None:
            raise BadInputError("--from needs --sha256, to check the download")
        said |= {"url": origin, "format": (image_format or ImageFormatOption.QCOW2).value}
        _await_import(session, session.api.post("images", said), timeout_s=timeout)
        return
    query = {
        **said,
        "format": (image_format or _detect_image_format(file)).value,
        "source": file.name,
    }
    with (
        file.open("rb") as content,
        _progress_bar(f"sending {file.name}", quiet=session.json) as report,
    ):
        made = session.api.upload("images/upload", content, query=query, report=report)
    _await_import(session, made, timeout_s=timeout)


def _print_ready_image(session: Session, made: Mapping[str, Any]) -> None:
    session.answer(
        made,
        f"image {image_reference(made)} is ready: {size_text(made['size_bytes'])}, "
        f"disk {size_text(made['virtual_size_bytes'])}",
    )


def _await_import(session: Session, made: Mapping[str, Any], *, timeout_s: float) -> None:
    """Show the progress of download and check until the image is ready."""
    from controller.session.polling import poll_attempts, progress  # noqa: PLC0415

    seen = made
    with progress(quiet=session.json) as show:
        for look in poll_attempts(timeout_s):
            if seen["state"] != "importing":
                break
            with look:
                show(f"{image_reference(made)}: {image_state(seen)}")
                seen = session.api.get(f"images/{image_reference(made)}")
        else:
            raise WaitExpiredError(
                f"image {image_reference(made)} is not ready after {timeout_s:g} s;"
                f" `fuga image show {image_reference(made)}` shows its progress"
            )
    if seen["state"] != "ready":
        raise CliError(f"image {image_reference(made)}: {seen['last_error'] or seen['state']}")
    _print_ready_image(session, seen)


@app.command()
@pass_session
def remove(session: Session, image: ReferenceArgument) -> None:
    """Remove an unused image from the store and all hosts."""
    removed = session.api.delete(f"images/{image}")
    session.answer(removed, f"image {image_reference(removed)} is removed")


@app.command()
@pass_session
def release(session: Session, image: ReferenceArgument) -> None:
    """Release an image that is held because hosts stopped answering during its upload."""
    released = session.api.post(f"images/{image}/release", {})
    session.answer(
        released, f"image {image_reference(released)} is released: hosts receive it again"
    )


def _read_signature(file: Path) -> str:
    try:
        with file.open("rb") as content:
            found = content.read(_MAX_SIGNATURE_BYTES + 1)
        if len(found) <= _MAX_SIGNATURE_BYTES:
            return found.decode()
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        pass
    raise BadInputError(f"{file}: not a signature by minisign or cosign")


def _detect_image_format(file: Path) -> ImageFormatOption:
    try:
        with file.open("rb") as content:
            return (
                ImageFormatOption.QCOW2
                if content.read(4) == _QCOW2_MAGIC
                else ImageFormatOption.RAW
            )
    except OSError as error:
        raise BadInputError(f"{file}: cannot be read: {error.strerror}") from None


@contextmanager
def _progress_bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _whole: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn(what, markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)
