"""Which request or VM a command means: by id, by name, or by the part of an id."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controller.client.http import Client
from controller.session.name_lookup import find_reservation, find_target
from controller.terminal.errors import BadInputError

OLD = "01a220ac-2595-7202-8550-c5da2036ecd0"


class Listed:
    """An API that has these requests and reservations, and no VM."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    def items(self, kind: str, *, name: str | None = None) -> list[dict[str, Any]]:
        listed = () if kind == "vms" else self._rows
        return [row for row in listed if name is None or row["name"] == name]


def a_row(name: str, key: str, *, tenant: str = "a", state: str = "placed") -> dict[str, Any]:
    return {"name": name, "id": key, "tenant": tenant, "state": state}


@pytest.mark.parametrize(
    ("find", "state"), [(find_target, "placed"), (find_reservation, "in_force")]
)
def test_a_name_that_is_the_part_of_anothers_id_is_ambiguous(find: Any, state: str) -> None:
    one = a_row("base", OLD, state=state)
    other = a_row("2036ecd0", OLD[::-1], tenant="b", state=state)
    api = cast("Client", Listed(one, other))

    with pytest.raises(BadInputError, match="'2036ecd0' is ambiguous") as refused:
        find(api, "2036ecd0")

    assert OLD in str(refused.value)
    assert OLD[::-1] in str(refused.value)


def test_a_name_that_is_no_such_part_is_found_by_itself() -> None:
    row = a_row("2036ecd1", OLD[::-1])

    assert find_target(cast("Client", Listed(a_row("base", OLD), row)), "2036ecd1").record == row
