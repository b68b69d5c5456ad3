"""Writes the published descriptions of the API: `openapi.json` and `api-problems.md`.

python -m controller.rest.pages.published docs
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, cast

from controller.rest.app import create_app
from controller.rest.problems.pages import problems_markdown
from registry import Registry

OPENAPI_FILE: Final = "openapi.json"
PROBLEMS_FILE: Final = "api-problems.md"


def openapi_document() -> dict[str, Any]:
    """Return the API's description; it needs no database."""
    return create_app(cast(Registry, None)).openapi()


def main(arguments: list[str]) -> int:
    """Write both published descriptions of the API into a folder."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m controller.rest.pages.published FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    folder = Path(arguments[0])
    document = json.dumps(openapi_document(), indent=1, sort_keys=True, ensure_ascii=False)
    (folder / OPENAPI_FILE).write_text(document + "\n")
    (folder / PROBLEMS_FILE).write_text(problems_markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
