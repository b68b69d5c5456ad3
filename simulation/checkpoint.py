"""Checkpoint files of simulations between two slots: plain data, no code.

The file says first whose state it is and what its content sums up to: neither another
simulation's nor a damaged one is looked at any further. What is read is never more than
the file is long.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulation.errors import InputError

#: JSON values, and arrays of numbers among them.
CheckpointData = Mapping[str, Any]

_MAGIC: Final = b"fuga checkpoint 2\n"
_DIGEST: Final = 64  #: characters
_HEAD: Final = len(_MAGIC) + 2 * (_DIGEST + 1)
_DTYPES: Final = {"int": np.dtype("<i8"), "float": np.dtype("<f8"), "bool": np.dtype("?")}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}
_ARRAY: Final = "array"  #: the only key of an object that represents an array
_MAX_AXES: Final = 2


class CheckpointError(InputError):
    """A checkpoint that cannot be resumed."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(str(path), f"{problem}. Without --resume the run starts over.")


class MisfitError(ValueError):
    """A checkpoint value has another type, length or range than expected."""


def encode_checkpoint(document: CheckpointData, digest: str) -> bytes:
    """Encode a simulation's state as the bytes of its checkpoint file."""
    arrays: list[NDArray[Any]] = []
    bare = _extract_arrays(document, arrays)
    array_headers = [[_NAMES[array.dtype], list(array.shape)] for array in arrays]
    head = json.dumps({"arrays": array_headers, "document": bare}, allow_nan=False).encode()
    parts = [len(head).to_bytes(8, "little"), head, *(_array_bytes(array) for array in arrays)]
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(part)
    return b"".join([_MAGIC, f"{digest}\n{sha256.hexdigest()}\n".encode(), *parts])


def read_checkpoint(path: Path, digest: str) -> CheckpointData | None:
    """Return a simulation's checkpoint; None if there is none or it is of another simulation.

    Raises
    ------
    CheckpointError
        If the file is damaged, or is none of ours.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if not head.startswith(_MAGIC) or len(head) < _HEAD:
                raise CheckpointError(path, "it is no checkpoint of this version of fuga")
            owner, header = head[len(_MAGIC) :].decode("ascii", "replace").split("\n")[:2]
            if owner != digest:
                return None
            body = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(path, f"it cannot be read: {error.strerror}") from None
    if hashlib.sha256(body).hexdigest() != header:
        raise CheckpointError(path, "it is damaged: its content is not what was written")
    try:
        return decode_checkpoint(body)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(path, f"it is damaged: {error}") from None


def decode_checkpoint(body: bytes) -> CheckpointData:
    """Decode the bytes of a checkpoint's file; raise ValueError for any other bytes."""
    view = memoryview(body)
    length = int.from_bytes(view[:8], "little")
    if len(view) < 8 or length > len(view) - 8:
        raise MisfitError("it is shorter than it says")
    head = json.loads(bytes(view[8 : 8 + length]))
    if not isinstance(head, dict) or not isinstance(head.get("arrays"), list):
        raise MisfitError("it lists no arrays")
    arrays, rest = [], view[8 + length :]
    for array_header in head["arrays"]:
        array, rest = _decode_array(array_header, rest)
        arrays.append(array)
    if len(rest):
        raise MisfitError(f"{len(rest)} bytes more than its arrays have")
    document = _insert_arrays(head.get("document"), arrays)
    if not isinstance(document, dict):
        raise MisfitError("it holds no document")
    return document


class ValueRange(NamedTuple):
    """The allowed range of the numbers in a checkpoint's array, without its upper end."""

    low: int
    high: int


_COUNT: Final = ValueRange(0, 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSizes:
    """Upper bounds of the numbers in a checkpoint's arrays."""

    tenants: int
    kinds: int
    constraints: int
    hosts: int


def read_array(
    kept: CheckpointData,
    name: str,
    like: str | None,
    shape: tuple[int | None, ...],
    within: ValueRange | None = None,
) -> NDArray[Any]:
    """Return a checkpoint's array of this shape and type: "int", "float", "bool"; None: any."""
    found = kept[name]
    if not isinstance(found, np.ndarray) or like not in (None, _NAMES[found.dtype]):
        raise MisfitError(f"{name} is no array of {like or 'numbers'}")
    fits = len(found.shape) == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, found.shape, strict=True)
    )
    if not fits:
        raise MisfitError(f"{name} has shape {found.shape}, wanted {shape}")
    if within is not None and found.size and not _is_in_range(found, within):
        raise MisfitError(f"{name} holds a number outside {within.low} to {within.high - 1}")
    return found


def read_integer(kept: CheckpointData, name: str, within: ValueRange = _COUNT) -> int:
    """Return a whole number of a checkpoint; raise `MisfitError` if it is out of range."""
    found = kept[name]
    if type(found) is not int or not within.low <= found < within.high:
        raise MisfitError(f"{name} is {found!r:.40}, wanted {within.low} to {within.high - 1}")
    return found


def read_seconds(kept: CheckpointData, name: str) -> float:
    """Return a length of time of a checkpoint, in seconds, at least 0."""
    found = kept[name]
    if type(found) is not float or not math.isfinite(found) or found < 0:
        raise MisfitError(f"{name} is {found!r:.40}, wanted seconds")
    return found


def read_texts(kept: CheckpointData, name: str) -> list[str]:
    """Return distinct texts of a checkpoint."""
    found = kept[name]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise MisfitError(f"{name} is no list of words")
    if len(set(found)) < len(found):
        raise MisfitError(f"{name} holds a word twice")
    return found


def _is_in_range(found: NDArray[Any], within: ValueRange) -> bool:
    """Return whether all numbers of an array are in a range."""
    return int(found.min()) >= within.low and int(found.max()) < within.high


def _dtype_and_shape(array_header: object) -> tuple[str, list[int]]:
    """Check the header of an array in a checkpoint; return its type and shape."""
    match array_header:
        case [str() as name, [*axes]] if name in _DTYPES and len(axes) <= _MAX_AXES:
            shape = [axis for axis in axes if isinstance(axis, int) and 0 <= axis < 2**48]
            if len(shape) == len(axes):
                return name, shape
    raise MisfitError(f"an array is described as {array_header!r:.80}")


def _decode_array(array_header: object, rest: memoryview) -> tuple[NDArray[Any], memoryview]:
    """Decode the array that begins the bytes; return it, and the bytes after it."""
    name, shape = _dtype_and_shape(array_header)
    dtype = _DTYPES[name]
    length = math.prod(shape) * dtype.itemsize
    if length > len(rest):
        raise MisfitError(f"an array of {length} bytes, where {len(rest)} are left")
    flat = np.frombuffer(rest[:length], dtype=np.uint8 if name == "bool" else dtype)
    if name == "bool" and flat.size and flat.max() > 1:
        raise MisfitError("neither true nor false")
    return flat.astype(dtype).reshape(shape), rest[length:]


def _extract_arrays(value: object, arrays: list[NDArray[Any]]) -> object:
    """Return the document with a number in place of each array, which goes to ``arrays``."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, Mapping):
        return {name: _extract_arrays(each, arrays) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_extract_arrays(each, arrays) for each in value]
    return value


def _insert_arrays(value: object, arrays: list[NDArray[Any]]) -> Any:
    """Return the document with its arrays put back in place of their numbers."""
    if isinstance(value, list):
        return [_insert_arrays(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {_ARRAY}:
        number = value[_ARRAY]
        if type(number) is not int or not 0 <= number < len(arrays):
            raise MisfitError(f"there is no array {number!r:.40}")
        return arrays[number]
    return {name: _insert_arrays(each, arrays) for name, each in value.items()}


def _array_bytes(array: NDArray[Any]) -> bytes:
    """Return the numbers of an array as the bytes that a checkpoint holds."""
    return np.ascontiguousarray(array).tobytes()
