from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from registry import InvalidError, SharedSettings, celery_config


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


def test_a_configuration_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_CONFIG", "nowhere.toml")

    with pytest.raises(InvalidError, match="FUGA_CONFIG"):
        SharedSettings()


def test_secrets_print_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_DATABASE_URL", "postgresql+psycopg://fuga:hunter2@db/fuga")

    settings = SharedSettings()

    assert "hunter2" not in repr(settings)
    assert "hunter2" in settings.resolved_database_url()


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
    assert "broker_transport_options" not in config
    assert not (tmp_path / ".fuga").exists()


def test_tasks_are_json_without_results(tmp_path: Path) -> None:
    config = celery_config(SharedSettings())

    assert config["task_serializer"] == "json"
    assert config["accept_content"] == ["json"]
    assert config["result_backend"] is None
    assert config["task_ignore_result"] is True
    assert config["task_acks_late"] is True
