"""Settings that all processes share: the state folder, database and broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, SecretStr, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from plain_text import RepeatedNameError, dict_of_unique_names
from registry import InvalidError
from registry.db import private_folder
from registry.hosts import HostCredentials
from registry.images import ImageStore, read_image_keys
from registry.tasks import QUEUE_OF, WorkQueue
from service.broker.url import broker_config
from service.logs import LogFormat, LogLevel
from service.settings_names import check_setting_names
from service.socket_addresses import check_metrics_address


class _EnvironmentSource(EnvSettingsSource):
    """Reads environment variables; a name repeated in their JSON is an error."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Parse a setting's JSON in the environment; `InvalidError` for a repeated name."""
        decoded = super().decode_complex_value(field_name, field, value)
        if decoded is value:  # the field has a form of its own
            return value
        try:
            return json.loads(value, object_pairs_hook=dict_of_unique_names)
        except RepeatedNameError as error:
            allowed = "each name once in an object"
            raise InvalidError(f"FUGA_{field_name.upper()}", error.name, allowed) from error


class SharedSettings(BaseSettings):
    """Environment variables ``FUGA_*``, else the TOML file that ``FUGA_CONFIG`` names.

    An empty variable counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix="FUGA_",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    state_dir: Path = Field(
        default=Path(".fuga"), description="State folder: database, broker, lab, tokens."
    )
    database_url: SecretStr | None = Field(
        default=None, description="Register center; SQLite in the state directory by default."
    )
    broker_url: SecretStr | None = Field(
        default=None, description="Celery's broker; folders in the state directory by default."
    )
    image_store: Path | None = Field(
        default=None,
        description="Image store: a folder that API and workers share; by default in the state"
        " directory.",
    )
    host_credentials: Path | None = Field(
        default=None,
        description="Folder of host credentials, a subfolder for each, for monitor and"
        " workers; by default in the state directory.",
    )
    image_urls: frozenset[str] = Field(
        default=frozenset(),
        description="URL prefixes that images may be downloaded from, whole folders.",
    )
    image_max_gib: PositiveInt = Field(default=100, description="Maximum size of an image file.")
    image_margin_gib: NonNegativeInt = Field(
        default=1,
        description="Disk space that images leave free in the image store and in hosts' pools.",
    )
    image_keys: frozenset[Path] = Field(
        default=frozenset(),
        description="Public key files of minisign or cosign, the same for API and workers."
        " If set, images must be signed.",
    )
    fence_command: tuple[str, ...] = Field(
        default=(),
        description="Command and arguments that switch a host off; {target} and {host} in"
        " them are replaced by the host's fence target and name.",
    )
    fence_timeout_s: PositiveFloat = Field(
        default=60,
        description="Time after which the fencing command is killed and counts as failed.",
    )
    lease_s: PositiveFloat = 30
    moves_per_host: PositiveInt = Field(
        2, description="Maximum number of VMs that move to or from one host at a time."
    )
    moves_at_once: PositiveInt = Field(
        8, description="Maximum number of VMs that move at a time in the whole site."
    )
    log_level: LogLevel = "info"
    log_format: LogFormat = Field(
        default="auto", description="json, text, or text at a terminal alone (auto)."
    )
    metrics_listen: str | None = Field(
        default=None,
        description="host:port or unix:PATH of /healthz, /readyz and /metrics, without a token;"
        " {process} in it stands for api, control, monitor, worker or simulation-worker.",
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _normalize_level(cls, level: object) -> object:
        """Return a log level in small letters."""
        return level.lower() if isinstance(level, str) else level

    @field_validator("metrics_listen")
    @classmethod
    def _check_metrics_listen(cls, address: str | None) -> str | None:
        return None if address is None else check_metrics_address(address)

    @field_validator("fence_command")
    @classmethod
    def _check_absolute_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ValueError unless the program of a command has its full path."""
        if command and not command[0].startswith("/"):
            raise ValueError(f"the program needs its full path, found {command[0]!r}")
        return command

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings: arguments, then environment, then file."""
        config = os.environ.get("FUGA_CONFIG")
        if not config:
            return init_settings, _EnvironmentSource(settings_cls)
        if not Path(config).is_file():
            raise InvalidError("FUGA_CONFIG", config, "the path of a TOML file that exists")
        file = TomlConfigSettingsSource(settings_cls, Path(config))
        check_setting_names(config, file.toml_data)
        return init_settings, _EnvironmentSource(settings_cls), file

    def resolved_database_url(self) -> str:
        """Return the database's URL, with its password if it has one."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.state_dir.resolve() / 'fuga.db'}"

    def make_state_dir(self) -> Path:
        """Create the state folder for its owner alone, or check that it is."""
        return private_folder(self.state_dir.resolve())

    def resolved_image_store(self) -> ImageStore:
        """Return the image store of the settings, as this machine sees it."""
        folder = self.image_store or self.state_dir / "images"
        return ImageStore(
            folder.resolve(),
            max_bytes=self.image_max_gib << 30,
            margin_bytes=self.image_margin_gib << 30,
            keys=read_image_keys(self.image_keys),
        )

    def metrics_address(self, process: str) -> str | None:
        """Return the address of a process's health and metrics listener, or None."""
        if self.metrics_listen is None:
            return None
        return self.metrics_listen.replace("{process}", process)

    def resolved_host_credentials(self) -> HostCredentials:
        """Return the folder of host credentials on this machine."""
        folder = self.host_credentials or self.state_dir / "host-credentials"
        return HostCredentials(folder.resolve())


def direct_queue(name: str) -> Any:
    """Return a queue of the broker that receives messages without an exchange's bindings.

    The bindings that a declaration writes into the broker would never be read, but a
    broken one would stop everybody.
    """
    from kombu.entity import Queue  # noqa: PLC0415 - most commands send nothing

    return Queue(name, routing_key=name, no_declare=True)  # type: ignore[no-untyped-call]  # kombu


def celery_config(settings: SharedSettings) -> dict[str, Any]:
    """Return Celery's configuration by the settings; make the folders of a filesystem broker.

    The broker carries ids and may lose or repeat them: the sweep sends again
    what no worker picked up, so there is no result backend and no persistence to
    rely on.
    """
    config: dict[str, Any] = {
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "result_backend": None,
        "task_acks_late": True,
        "worker_prefetch_multiplier": 1,
        "broker_connection_retry_on_startup": True,
        # For good: after Celery's own hundred tries a worker would end.
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,
        "task_default_queue": WorkQueue.BUILD.broker_name,
        "task_queues": [direct_queue(queue.broker_name) for queue in WorkQueue],
        "task_routes": {task: {"queue": queue.broker_name} for task, queue in QUEUE_OF.items()},
        "worker_hijack_root_logger": False,
    }
    if settings.broker_url is not None:
        return config | broker_config(settings.broker_url.get_secret_value())
    broker = private_folder(settings.make_state_dir() / "broker")
    messages, control = broker / "messages", broker / "control"
    for folder in (messages, control):
        private_folder(folder)
    return config | {
        "broker_url": "filesystem://",
        "broker_transport_options": {
            # One folder: what is written is what is read.
            "data_folder_in": str(messages),
            "data_folder_out": str(messages),
            "control_folder": str(control),
            "store_processed": False,
        },
    }
