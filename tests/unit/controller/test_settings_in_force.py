"""What operators read of the settings, and what stays with the process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.oidc_mapping import OidcRule
from controller.settings import ControllerSettings
from registry.tasks import WorkQueue
from service.settings_in_force import SET, settings_in_force, shown_value
from service.settings_names import settings_classes


def test_secrets_are_told_to_be_set_and_nothing_else_of_them() -> None:
    settings = ControllerSettings(
        database_url="postgresql://fuga:hunter2@db/fuga",  # type: ignore[arg-type]
        token="fuga_hunter2",  # type: ignore[arg-type]
        fence_command=("/usr/bin/fence", "--password", "hunter2"),
        image_urls=frozenset({"https://me:hunter2@images.example.org/"}),
    )

    found = {each.name: each for each in settings_in_force(settings, {"FUGA_TOKEN": "x"})}

    assert found["FUGA_DATABASE_URL"].value == SET
    assert found["FUGA_TOKEN"].value == SET
    assert found["FUGA_FENCE_COMMAND"].value == "/usr/bin/fence …"
    assert found["FUGA_BROKER_URL"].value is None
    assert not any("hunter2" in str(each.value) for each in found.values())


def test_each_text_of_a_table_is_masked_for_itself() -> None:
    table = {
        "url": "amqp://me:hunter2@broker",
        "deep": [{"password": 'hun"ter2', "other": "plain"}],
        "vcpus": 3,
    }

    body = json.loads(shown_value("table", table) or "")

    assert body["deep"] == [{"password": SET, "other": "plain"}]
    assert (body["url"], body["vcpus"]) == ("amqp://me:***@broker", 3)
    assert shown_value("table", {}) is None


def test_a_setting_says_where_it_is_from() -> None:
    settings = ControllerSettings(policy="drf", slot_length_s=5)

    found = {each.name: each for each in settings_in_force(settings, {"FUGA_POLICY": "drf"})}

    assert (found["FUGA_POLICY"].value, found["FUGA_POLICY"].source) == ("drf", "environment")
    assert (found["FUGA_SLOT_LENGTH_S"].value, found["FUGA_SLOT_LENGTH_S"].source) == (
        "5.0",
        "file",
    )
    assert found["FUGA_BUDGET_UNITS"].source == "default"


def test_rules_are_told_in_the_order_in_which_they_count() -> None:
    rules = (
        OidcRule(claim="groups", value="staff", tenant="staff"),
        OidcRule(claim="groups", value="admins", operator=True),
    )

    found = {each.name: each for each in settings_in_force(ControllerSettings(oidc_rules=rules))}

    shown = found["FUGA_OIDC_RULES"].value or ""
    assert 0 < shown.index("'staff'") < shown.index("'admins'")


def test_no_setting_of_a_process_is_shown_as_code_writes_it() -> None:
    for each in settings_classes().values():
        for name, value in each().model_dump(mode="python").items():
            assert "<" not in (shown_value(name, value) or ""), name


@pytest.mark.parametrize("many", [list, tuple, frozenset])
def test_several_values_are_shown_with_commas_whatever_holds_them(many: Any) -> None:
    assert shown_value("queues", many([WorkQueue.BUILD])) == "build"
    assert shown_value("queues", many([])) is None
