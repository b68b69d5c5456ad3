"""The folder of images beside the register center: what a killed API left is found and goes."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from registry import Registry
from registry.db import uuid7
from registry.images import (
    ImageStore,
    NewImage,
    check_image_files,
    remove_files_of_removed,
    remove_strays,
)
from tests.register import ACTOR

CONTENT = b"\0" * 1024


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", max_bytes=4096)


def add(registry: Registry, store: ImageStore, name: str = "debian", *, rows: bool = True) -> Path:
    """Add an image as the API does; without ``rows``: as one that is killed before its commit."""
    key = uuid7()
    with store.receive(key, "raw") as incoming:
        incoming.write(CONTENT)
        stored = incoming.store(None)
        if rows:
            registry.images.add(
                NewImage(name=name, format="raw"),
                id=key,
                sha256=stored.sha256,
                size_bytes=stored.size_bytes,
                virtual_size_bytes=stored.virtual_size_bytes,
                source="a-test",
                actor=ACTOR,
            )
    return store.path(key, "raw")


def told(registry: Registry, store: ImageStore, *, hashes: bool = False) -> list[str]:
    return [each.message for each in check_image_files(registry.images, store, hashes=hashes)]


def test_files_of_no_image_are_found_and_deleted(register: Registry, store: ImageStore):
    kept, removed = add(register, store), add(register, store, "old")
    register.images.remove("old", actor=ACTOR)  # and the file stayed: its API was killed
    stray = add(register, store, rows=False)
    part = store.folder / f"{uuid7()}.raw.0.part"
    part.write_bytes(b"half")
    os.utime(part, (time.time() - 7200,) * 2)
    foreign = store.folder / "README"
    foreign.touch()

    found = told(register, store)
    at_a_start = [each.stray for each in remove_files_of_removed(register.images, store)]
    deleted = [each.stray for each in remove_strays(register.images, store)]

    assert sorted(found) == sorted(
        [
            f"{removed}: its image old:1 is removed",
            f"{stray}: no image has this file",
            f"{part}: it was received in part, and its upload has ended",
        ]
    )
    assert sorted(at_a_start) == sorted([removed, part])
    assert deleted == [stray]
    assert sorted(store.folder.iterdir()) == sorted([foreign, kept])
    assert told(register, store) == []
    assert remove_strays(register.images, store) == []


@pytest.mark.sqlite
def test_a_file_whose_image_is_being_added_is_left_alone(register: Registry, store: ImageStore):
    with store.receive(uuid7(), "raw") as incoming:
        incoming.write(CONTENT)
        assert (told(register, store), remove_strays(register.images, store)) == ([], [])
        incoming.store(None)
        assert (told(register, store), remove_strays(register.images, store)) == ([], [])

    assert len(remove_strays(register.images, store)) == 1


@pytest.mark.sqlite
def test_images_whose_files_are_not_as_they_were_are_found(register: Registry, store: ImageStore):
    gone, short, other = (add(register, store, name) for name in ("gone", "short", "other"))
    gone.unlink()
    short.write_bytes(CONTENT[:512])
    other.write_bytes(b"\1" * 1024)
    found = hashlib.sha256(b"\1" * 1024).hexdigest()

    quick, thorough = told(register, store), told(register, store, hashes=True)

    assert quick == [
        f"image gone:1: {gone} is not there; add the same content again, and it is back",
        f"image short:1: {short} has 512 bytes, it should have 1024",
    ]
    assert sorted(set(thorough) - set(quick)) == [
        f"image other:1: the SHA-256 of {other} is {found}, not its own"
    ]
    assert remove_strays(register.images, store) == []


@pytest.mark.sqlite
def test_without_a_folder_all_files_are_missing(register: Registry, store: ImageStore):
    assert told(register, store) == []
    path = add(register, store)
    path.unlink()
    store.folder.rmdir()

    assert len(told(register, store)) == 1
    assert remove_strays(register.images, store) == []
