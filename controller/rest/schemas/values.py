"""Types of fields, and the base classes of inputs, queries and pages."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from controller.rest.problems import patterns
from registry import InvalidError
from registry.db import MAX_TTL_S
from registry.rounds import MAX_REASON_LENGTH

MAX_BIGINT: Final = 2**63 - 1


LABELS_SAID: Final = "KEY=VALUE; all given labels must match."


Name = Annotated[str, StringConstraints(pattern=patterns.NAME, max_length=63)]


ImageReference = Annotated[str, StringConstraints(pattern=patterns.REFERENCE, max_length=73)]


Label = Annotated[str, StringConstraints(pattern=patterns.HOST_LABEL, max_length=128)]


LibvirtName = Annotated[str, StringConstraints(pattern=patterns.LIBVIRT_NAME, max_length=128)]


Uri = Annotated[str, StringConstraints(pattern=patterns.URI, max_length=500)]


Count = Annotated[int, Field(ge=1, le=10_000)]


Amount = Annotated[int, Field(ge=0, le=1_000_000_000_000)]


Amounts = Annotated[dict[Name, Amount], Field(max_length=32)]


Ratio = Annotated[int, Field(ge=1, le=1_000_000, description="Over-commit ratio, in thousandths.")]


Ratios = Annotated[dict[Name, Ratio], Field(max_length=32)]


Labels = Annotated[list[Label], Field(max_length=64)]


AddressText = Annotated[str, StringConstraints(pattern=patterns.ADDRESS, max_length=40)]


ReasonText = Annotated[
    str, StringConstraints(pattern=patterns.REASON, min_length=1, max_length=MAX_REASON_LENGTH)
]


PublicKey = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


SshHostKeys = Annotated[
    list[PublicKey],
    Field(max_length=8, description="Accepted SSH host keys; the host must show one of them."),
]


UserDataText = Annotated[str, StringConstraints(pattern=patterns.BASE64, max_length=87_384)]


Weight = Annotated[float, Field(ge=0.000001, le=1_000_000, allow_inf_nan=False)]


#: Text with a strict pattern: Pydantic would also accept numbers, and times out of Python's range.
MomentText = Annotated[str, StringConstraints(pattern=patterns.MOMENT, max_length=40)]


DayText = Annotated[str, StringConstraints(pattern=patterns.DAY, max_length=10)]


LabelKey = Annotated[str, StringConstraints(pattern=patterns.KEY, max_length=63)]


LabelValue = Annotated[str, StringConstraints(pattern=patterns.VALUE, max_length=63)]


LabelFilter = Annotated[
    list[Annotated[str, StringConstraints(pattern=patterns.LABEL_FILTER, max_length=127)]],
    Field(max_length=32),
]


OwnLabels = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]


LabelChanges = Annotated[dict[LabelKey, LabelValue | None], Field(max_length=64)]


TtlSeconds = Annotated[int, Field(ge=1, le=MAX_TTL_S)]


T = TypeVar("T")


class Input(BaseModel):
    """A body that the API accepts."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PageQuery(BaseModel):
    """Selects a part of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[str, Field(pattern=patterns.CURSOR)] | None = Field(
        None, description="The `next` of the previous page."
    )


class SearchQuery(PageQuery):
    """Selects a part of a list by a part of names."""

    search: Annotated[str, Field(pattern=patterns.PART_OF_NAME)] | None = Field(
        None, description="A part of the name."
    )


class MomentsQuery(PageQuery):
    """Selects a part of a list and a period."""

    since: MomentText | None = None
    until: MomentText | None = Field(None, description="Only before this time.")

    def moments(self) -> dict[str, datetime | None]:
        """Return ``since`` and ``until``; raise `InvalidError` for a date that does not exist."""
        return {name: parse_moment_field(name, getattr(self, name)) for name in ("since", "until")}


def parse_moment_field(name: str, given: str | None) -> datetime | None:
    """Parse a time in a field; raise `InvalidError` for a date that does not exist."""
    if given is None:
        return None
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        raise InvalidError(name, given, "an existing date and time") from None


def parse_day_field(name: str, given: str) -> date:
    """Parse a day in a field; raise `InvalidError` for a date that does not exist."""
    try:
        return date.fromisoformat(given)
    except ValueError:
        raise InvalidError(name, given, "an existing date") from None


class PageOf(BaseModel, Generic[T]):
    """A part of a list."""

    items: list[T]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")
