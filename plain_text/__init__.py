"""What others wrote, made harmless to look at: for terminals, logs and pages of every package."""

from plain_text.repeated import RepeatedNameError, each_once
from plain_text.shown import (
    advice,
    listed,
    nearest,
    plain,
    plain_json,
    plain_lines,
    plain_yaml,
    short_host_name,
    shortened,
)

__all__ = [
    "RepeatedNameError",
    "advice",
    "each_once",
    "listed",
    "nearest",
    "plain",
    "plain_json",
    "plain_lines",
    "plain_yaml",
    "short_host_name",
    "shortened",
]
