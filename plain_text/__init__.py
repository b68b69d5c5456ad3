"""Text of others, made safe to show on terminals, in logs and on pages."""

from plain_text.escaping import plain, plain_json, plain_lines, plain_yaml, shortened
from plain_text.host_names import are_host_names_apart, split_host_name
from plain_text.repeated_names import RepeatedNameError, each_once
from plain_text.suggestions import advice, listed, nearest

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
