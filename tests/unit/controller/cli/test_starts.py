"""Commands import what they need, and end at Ctrl-C without a traceback from the first moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from controller.cli.commands import COMMAND_ENTRIES
from controller.cli.main import app
from tests.fakes.http_api import http_api

HEAVY = {
    *("numpy", "scipy", "pandas", "sqlalchemy", "alembic", "celery", "kombu", "fastapi", "uvicorn"),
    *("cryptography", "matplotlib", "pyarrow", "numba", "redis", "registry", "placement"),
    *("simulation", "structlog", "pydantic_settings", "pygments"),
}
OURS = "controller.cli."
#: What a command asks the API with.
ASKING = {"httpx", "httpcore", "ssl"}
RUN = """
import sys
from controller.cli.start import main
sys.argv = ["fuga", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("\\nMODULES", *sys.modules)
"""
FUGA = Path(sys.executable).with_name("fuga")


@pytest.mark.parametrize(
    "command",
    ["vms", "requests", "host list", "events", "rounds", "type list", "explain web", "--version"],
)
def test_who_asks_the_api_imports_neither_database_nor_mathematics(
    command: str, tmp_path: Path
) -> None:
    with http_api() as api:
        request = {"id": "r", "name": "web", "tenant": "a", "state": "placed"}
        for path in ("vms", "hosts", "rounds", "vm-types"):
            api.on_list(f"/v1/{path}")
        api.on_list("/v1/requests", *([request] if command == "explain web" else []))
        api.on("GET", "/v1/events", {"items": [], "next": 0})
        counts = dict.fromkeys(("wanted", "placed", "running"), 1)
        api.on("GET", "/v1/requests/r/explanation", {**request, **counts, "waiting": None})
        imported = modules_of(command, tmp_path, FUGA_URL=api.url, FUGA_TOKEN="t")

    assert packages(imported) & HEAVY == set()
    # What only tells types, draws help, or belongs to other commands.
    assert imported.isdisjoint({"controller.client.models", "rich.console", "rich.markdown"})
    assert imported.isdisjoint(
        OURS + each
        for each in (
            "operating.processes",
            "simulations.simulate",
            "problems.solve",
            "doctor.doctor",
        )
    )


@pytest.mark.parametrize("command", ["solve", "simulate", "vms", "host", "up", "worker", "db"])
def test_help_imports_its_own_command_and_nobody_to_ask(command: str, tmp_path: Path) -> None:
    imported = modules_of(f"{command} --help", tmp_path)

    assert packages(imported) & (HEAVY - {"pygments"} | ASKING) == set()
    assert imported.isdisjoint(
        OURS + each for each in ("operating.audit", "operating.env", "operating.rounds")
    )


@pytest.mark.parametrize(
    "process", ["controller.rest", "controller.control_center.slot_loop", "simulation"]
)
def test_a_process_that_serves_leaves_solvers_to_those_that_solve(process: str) -> None:
    said = f"import sys, {process}\nsys.exit('scipy' in sys.modules)"

    subprocess.run([sys.executable, "-c", said], check=True)


def test_the_help_of_all_commands_imports_nobody_to_ask(tmp_path: Path) -> None:
    assert packages(modules_of("--help", tmp_path)) & (HEAVY - {"pygments"} | ASKING) == set()


def test_completion_of_a_name_imports_the_commands_that_begin_so(tmp_path: Path) -> None:
    words = {"COMP_WORDS": "fuga vm", "COMP_CWORD": "1"}
    imported = modules_of("", tmp_path, _FUGA_COMPLETE="complete_bash", **words)

    assert packages(imported) & (HEAVY | ASKING) == set()
    assert OURS + "vms.requests" in imported
    assert imported.isdisjoint(
        OURS + each for each in ("operating.processes", "simulations.simulate", "site.hosts")
    )


def test_every_command_is_where_the_list_says_and_known_by_the_name_there() -> None:
    everything = typer.main.get_command(app)
    context = typer.Context(everything)

    names = everything.list_commands(context)  # type: ignore[attr-defined]
    made = [everything.get_command(context, each) for each in names]  # type: ignore[attr-defined]

    assert [each.name for each in made] == names == list(COMMAND_ENTRIES)
    assert [each.rich_help_panel for each in made] == [
        each.panel for each in COMMAND_ENTRIES.values()
    ]


def modules_of(command: str, state: Path, **told: str) -> set[str]:
    """Return what a process that ran this command has imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command.split()],
        env={**os.environ, "FUGA_STATE_DIR": str(state), **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.partition("MODULES ")[2].split())


def packages(modules: set[str]) -> set[str]:
    return {each.partition(".")[0] for each in modules}


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback() -> None:
    # Stands in for the commands, and is interrupted as its import begins.
    begin = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "controller.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
signal.signal(signal.SIGINT, signal.default_int_handler)
from controller.cli.start import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", begin, "vms"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_installed_command_begins_there() -> None:
    assert "controller.cli.start" in FUGA.read_text()


def test_an_installation_without_its_packages_says_so_in_one_line():
    code = "import sys; sys.modules['typer'] = None; from controller.cli.start import main; main()"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "package typer is missing" in line
    assert "requirements/runtime.lock" in line
