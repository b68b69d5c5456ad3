"""The option --config: sets FUGA_CONFIG for this process and its children."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def _export_config(config: Path | None) -> Path | None:
    """Set FUGA_CONFIG to the path that --config gives, for this process and its children."""
    if config is not None:
        os.environ["FUGA_CONFIG"] = str(config.absolute())
    return config


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file, TOML (default: FUGA_CONFIG); the environment overrides it",
        callback=_export_config,
        is_eager=True,
    ),
]
