"""What others wrote, made harmless to look at: for terminals, logs and pages of every package."""

from plain_text.repeated import RepeatedNameError, each_once
from plain_text.shown import (
    advice,
    are_host_names_apart,
    listed,
    nearest,
    plain,
    plain_json,
    plain_lines,
    plain_yaml,
    shortened,
    split_host_name,
)

__all__ = [
    "RepeatedNameError",
    "advice",
    "are_host_names_apart",
    "each_once",
    "listed",
    "nearest",
    "plain",
    "plain_json",
    "plain_lines",
    "plain_yaml",
    "shortened",
    "split_host_name",
]
