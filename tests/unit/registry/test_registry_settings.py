from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from controller.embedded.environment import embedded_settings
from registry import InvalidError, SettingsError
from service.settings import SharedSettings, celery_config
from service.settings_in_force import settings_in_force
from service.settings_names import load_settings, settings_classes


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG", "STATE_DIR", "DATABASE_URL", "BROKER_URL", "LEASE_S", "LOG_LEVEL"):
        monkeypatch.delenv(f"FUGA_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_database_lives_in_the_state_directory_by_default(tmp_path: Path) -> None:
    url = SharedSettings().resolved_database_url()

    assert url == f"sqlite:///{tmp_path}/.fuga/fuga.db"


def test_the_environment_goes_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "fuga.toml"
    config.write_text('lease_s = 7\nlog_level = "debug"\nslot_length_s = 5\n')
    monkeypatch.setenv("FUGA_CONFIG", str(config))
    monkeypatch.setenv("FUGA_LEASE_S", "9")

    settings = SharedSettings()

    assert settings.lease_s == 9
    assert settings.log_level == "debug"


@pytest.mark.parametrize("process", settings_classes())
def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, process: str) -> None:
    settings = settings_classes()[process]
    for name in settings.model_fields:
        monkeypatch.delenv(f"FUGA_{name.upper()}", raising=False)
    unset = settings()
    for name in settings.model_fields:
        monkeypatch.setenv(f"FUGA_{name.upper()}", "")

    found = load_settings(settings)

    assert found == unset
    assert {each.source for each in settings_in_force(found)} == {"default"}
    assert embedded_settings(os.environ, ()).keys() == embedded_settings({}, ()).keys()


@pytest.mark.parametrize("address", ["here", "unix:", ":9", "h:", "h:70000", "h:9x", "h:\u0669"])
@pytest.mark.parametrize("process", settings_classes())
def test_a_malformed_metrics_address_is_found_among_the_settings(
    monkeypatch: pytest.MonkeyPatch, process: str, address: str
) -> None:
    monkeypatch.setenv("FUGA_METRICS_LISTEN", address)

    with pytest.raises(SettingsError, match=r"FUGA_METRICS_LISTEN: found .*host:port or unix:PATH"):
        load_settings(settings_classes()[process])


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:9101", "unix:/run/{process}.sock"])
def test_a_metrics_address_is_kept_as_written(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("FUGA_METRICS_LISTEN", address)

    assert SharedSettings().metrics_listen == address


def test_a_malformed_address_of_the_api_is_found_among_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUGA_LISTEN", "8732")

    with pytest.raises(SettingsError, match=r"FUGA_LISTEN: found .*host:port"):
        load_settings(settings_classes()["api, control"])


def test_a_configuration_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_CONFIG", "nowhere.toml")

    with pytest.raises(InvalidError, match=r"FUGA_CONFIG"):
        SharedSettings()


def test_secrets_print_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_DATABASE_URL", "postgresql+psycopg://fuga:hunter2@db/fuga")

    settings = SharedSettings()

    assert "hunter2" not in repr(settings)
    assert "hunter2" in settings.resolved_database_url()


def test_a_level_of_logs_may_be_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_LOG_LEVEL", "INFO")

    assert SharedSettings().log_level == "info"


def test_a_lease_of_no_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_LEASE_S", "0")

    with pytest.raises(ValidationError):
        SharedSettings()


def test_the_filesystem_broker_has_its_folders_in_the_state_directory(tmp_path: Path) -> None:
    config = celery_config(SharedSettings())

    options = config["broker_transport_options"]
    assert config["broker_url"] == "filesystem://"
    assert options["data_folder_in"] == options["data_folder_out"]
    for key in ("data_folder_in", "control_folder"):
        assert Path(options[key]).is_dir()
        assert Path(options[key]).is_relative_to(tmp_path / ".fuga" / "broker")
    assert options["store_processed"] is False


def test_a_broker_of_the_operator_needs_no_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUGA_BROKER_URL", "redis://localhost/0")

    config = celery_config(SharedSettings())

    assert config["broker_url"] == "redis://localhost/0"
    assert not [key for key in config["broker_transport_options"] if key.endswith("_folder")]
    assert not (tmp_path / ".fuga").exists()


def test_a_worker_never_gives_up_on_its_broker(tmp_path: Path) -> None:
    config = celery_config(SharedSettings())

    assert config["broker_connection_max_retries"] is None
    assert config["broker_channel_error_retry"] is True


def test_tasks_are_json_without_results(tmp_path: Path) -> None:
    config = celery_config(SharedSettings())

    assert config["task_serializer"] == "json"
    assert config["accept_content"] == ["json"]
    assert config["result_backend"] is None
    assert config["task_ignore_result"] is True
    assert config["task_acks_late"] is True


@pytest.mark.parametrize(
    ("line", "meant"),
    [("slot_lenght_s = 5", "slot_length_s"), ("poll_intervall_s = 1", "poll_interval_s")],
)
def test_a_name_that_no_process_knows_is_refused_with_the_nearest_that_one_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, meant: str
) -> None:
    config = tmp_path / "fuga.toml"
    config.write_text(f"concurrency = 2\n{line}\nxyzzy = 1\n")
    monkeypatch.setenv("FUGA_CONFIG", str(config))

    for each in settings_classes().values():
        with pytest.raises(
            SettingsError,
            match=rf"is not a setting; did you mean {meant}\?.*xyzzy is not a setting",
        ):
            load_settings(each)


def test_what_is_wrong_with_settings_is_told_in_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUGA_LEASE_S", "soon")
    with pytest.raises(SettingsError, match=r"FUGA_LEASE_S: found 'soon'"):
        load_settings(SharedSettings)

    broken = tmp_path / "fuga.toml"
    broken.write_text("lease_s =")
    monkeypatch.setenv("FUGA_CONFIG", str(broken))
    with pytest.raises(SettingsError, match="settings: "):
        load_settings(SharedSettings)


@pytest.mark.parametrize("module", ["workers", "monitor"])
def test_a_process_with_wrong_settings_says_so_and_ends_with_status_2(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, "FUGA_LEASE_S": "soon"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "FUGA_LEASE_S: found 'soon'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("SLOT_LENGTH_S", "abc", "FUGA_SLOT_LENGTH_S: found 'abc', allowed is a number\n"),
        ("SLOT_LENGTH_S", "0", "found '0', allowed is a number greater than 0\n"),
        ("URI_SCHEMES", "qemu+ssh", """found 'qemu+ssh', allowed is a list, such as ["a", "b"]"""),
        ("BALANCE", "1", 'found 1, allowed is a table, such as {"a": 1}\n'),
        ("METRICS_MOST", "1.5", "found '1.5', allowed is a whole number\n"),
        ("LOG_LEVEL", "infos", "'error' or 'critical'; did you mean info?\n"),
        ("OVER_QUOTA", "refus", "allowed is 'refuse' or 'wait'; did you mean refuse?\n"),
        ("DEFAULT_QUOTA", "x", 'FUGA_DEFAULT_QUOTA: wanted is JSON, as ["a"] or {"a": 1}: '),
        ("DEFAULT_QUOTA", '{"vcpus": "x"}', "FUGA_DEFAULT_QUOTA (vcpus): found 'x', allowed is a"),
    ],
)
def test_a_wrong_setting_is_said_in_words(
    name: str, given: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FUGA_{name}", given)

    with pytest.raises(SettingsError) as refused:
        load_settings(settings_classes()["api, control"])

    assert said in str(refused.value)
    assert "Input should" not in str(refused.value)


def test_json_of_a_variable_says_each_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_FENCE_COMMAND", '["/bin/true"]')
    assert SharedSettings().fence_command == ("/bin/true",)
    monkeypatch.setenv("FUGA_FENCE_COMMAND", '[{"a": 1, "a": 2}]')

    with pytest.raises(InvalidError, match=r"FUGA_FENCE_COMMAND: found 'a', .*each name once"):
        SharedSettings()
