"""/docs: the OpenAPI document as one plain page that loads nothing from anywhere."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any, Final

CONTENT_SECURITY_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, summary b { font-family: ui-monospace, monospace }
summary { cursor: pointer; padding: .3rem 0 }
td, th { text-align: left; vertical-align: top; padding: .1rem 1rem .1rem 0 }
.method { display: inline-block; width: 4.5rem }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page."""
    info = document["info"]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{_text(info['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{_text(info['title'])} {_text(info['version'])}</h1>"
        f"<p>{_text(info['description'])}</p>"
        "<p>The same for programs: <a href='/openapi.json'>/openapi.json</a></p>"
        "<h2>Operations</h2>"
        + "".join(_operations(document["paths"]))
        + "<h2>Bodies and answers</h2>"
        + "".join(_schemas(document["components"]["schemas"]))
        + "</html>"
    )


def _operations(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            description = operation.get("description", operation.get("summary", ""))
            parameters = [
                (
                    parameter["name"],
                    f"{parameter['in']}: {type_text(parameter['schema'])}",
                    parameter.get("description", ""),
                )
                for parameter in operation.get("parameters", ())
            ]
            body = operation.get("requestBody")
            if body is not None:
                [(media_type, content)] = body["content"].items()
                said = "" if media_type == "application/json" else f"as {media_type}"
                parameters.append(("(body)", type_text(content["schema"]), said))
            answers = [
                (status, _answer_type(answer), answer["description"])
                for status, answer in operation["responses"].items()
            ]
            yield (
                f"<details><summary><b><span class='method'>{method.upper()}</span> "
                f"{_text(path)}</b> {_text(description)}</summary>"
                f"{_table(parameters)}<p>Answers</p>{_table(answers)}</details>"
            )


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        required = schema.get("required", ())
        rows = [
            (
                key + ("" if key in required else " (optional)"),
                type_text(value),
                value.get("description", ""),
            )
            for key, value in schema.get("properties", {}).items()
        ]
        if "enum" in schema:
            rows.append(("one of", ", ".join(map(str, schema["enum"])), ""))
        yield (
            f"<details id='{_text(name)}'><summary><b>{_text(name)}</b></summary>"
            f"<p>{_text(schema.get('description', ''))}</p>{_table(rows)}</details>"
        )


def type_text(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words: ``integer 1..500``, ``list of Vm``."""
    match schema:
        case {"$ref": reference}:
            text = str(reference).rpartition("/")[2]
        case {"anyOf": choices}:
            text = " or ".join(type_text(choice) for choice in choices)
        case {"enum": values}:
            text = " | ".join(map(str, values))
        case {"const": value}:
            text = str(value)
        case {"type": "array", "items": items}:
            text = f"list of {type_text(items)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            text = f"object of {type_text(values)}"
        case _:
            text = _scalar(schema)
    return text


def _scalar(schema: Mapping[str, Any]) -> str:
    limits = [
        f"{sign} {schema[key]}"
        for key, sign in (("minimum", "≥"), ("maximum", "≤"), ("pattern", "like"))
        if key in schema
    ]
    return " ".join([str(schema.get("format", schema.get("type", "anything"))), *limits])


def _answer_type(answer: Mapping[str, Any]) -> str:
    for media_type, content in answer.get("content", {}).items():
        return f"{type_text(content.get('schema', {}))} ({media_type})"
    return ""


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{cells}</table>" if rows else ""


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
