"""Text of others, made safe to show on terminals, in logs and on pages."""

from plain_text.escaping import plain, plain_json, plain_lines, plain_yaml, shorten_text
from plain_text.host_names import are_host_names_apart, split_host_name
from plain_text.repeated_names import RepeatedNameError, dict_of_unique_names
from plain_text.suggestions import join_names, similar_names, suggest_names

__all__ = [
    "RepeatedNameError",
    "are_host_names_apart",
    "dict_of_unique_names",
    "join_names",
    "plain",
    "plain_json",
    "plain_lines",
    "plain_yaml",
    "shorten_text",
    "similar_names",
    "split_host_name",
    "suggest_names",
]
