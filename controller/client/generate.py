"""Write the types of the Python client from the published description of the API.

    python -m controller.client.generate

reads docs/openapi.json of the current folder, a checkout, and writes controller/client/models.py,
which git ignores. `make install` and `scripts/copy-source` run it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

#: Of no use to who calls: pages are walked through, problems are errors.
_LEFT_OUT: Final = re.compile(r"PageOf_|EventsPage|HTTPValidation|Validation|Problem")
_PLAIN: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_HEAD: Final = '''"""Types of the API's inputs and answers, generated from docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict
'''


def models_module(document: Mapping[str, Any]) -> str:
    """Return the source of the Python client's module of types, from the OpenAPI document."""
    schemas = document["components"]["schemas"]
    written = [
        "\n".join(_class_source(name, schema))
        for name, schema in sorted(schemas.items())
        if not _LEFT_OUT.match(name)
    ]
    return _HEAD + "".join(f"\n\n{each}\n" for each in written)


def _class_source(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the Python type of an OpenAPI schema: a `TypedDict`, or an alias."""
    if "properties" not in schema:
        yield f"{_class_name(name)}: TypeAlias = {to_annotation(schema)}"
        return
    yield f"class {_class_name(name)}(TypedDict):"
    said = str(schema.get("description") or f"{name}.").partition("\n\n")[0]
    yield f'    """{" ".join(said.split())[:90]}"""'
    yield ""
    required = schema.get("required", ())
    for field, of in schema["properties"].items():
        written = to_annotation(of)
        yield f"    {field}: {written if field in required else f'NotRequired[{written}]'}"


def to_annotation(schema: Mapping[str, Any]) -> str:
    """Return the Python annotation of an OpenAPI schema."""
    if "$ref" in schema:
        return _class_name(schema["$ref"].rsplit("/", 1)[1])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(repr(each) for each in values)}]"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(to_annotation(each) for each in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "array":
        return f"list[{to_annotation(schema.get('items', {}))}]"
    if kind == "object":
        of = schema.get("additionalProperties")
        return f"dict[str, {to_annotation(of) if isinstance(of, Mapping) else 'Any'}]"
    return _PLAIN.get(str(kind), "Any")


def _class_name(name: str) -> str:
    return re.sub(r"\W", "", name)


if __name__ == "__main__":
    Path("controller/client/models.py").write_text(
        models_module(json.loads(Path("docs/openapi.json").read_text()))
    )
