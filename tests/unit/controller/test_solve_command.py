from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import placement
from controller.cli.problems import solve
from placement.mechanisms import MECHANISMS

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
TIMES = ("seconds", "timings")


class Ended(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: str, stdin: bytes = b"") -> Ended:
        fake = io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", fake)
        monkeypatch.setattr(sys, "argv", ["fuga solve", *arguments])
        with pytest.raises(SystemExit) as ended:
            solve.main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run_command


def problem(**parts: Any) -> bytes:
    value = {
        "resources": ["vcpus", "memory_gib"],
        "hosts": [{"name": "s1", "capacity": [4, 8]}],
        "tenants": [{"name": "u1"}, {"name": "u2"}],
        "demands": [
            {"name": "j1", "tenant": "u1", "per_vm": [1, 2], "count": 3},
            {"name": "j2", "tenant": "u2", "per_vm": [2, 2], "count": 3},
        ],
        **parts,
    }
    return json.dumps(value).encode()


def untimed(value: Any) -> Any:
    """Drop what may differ between two runs."""
    if isinstance(value, dict):
        return {
            key: untimed(each)
            for key, each in value.items()
            if key not in TIMES and not key.endswith("_seconds")
        }
    return [untimed(each) for each in value] if isinstance(value, list) else value


def answer(ended: Ended) -> dict[str, Any]:
    assert ended.status == 0, ended.err
    assert ended.err == ""
    value = json.loads(ended.out, parse_constant=pytest.fail)
    assert isinstance(value, dict)
    return value


POLICIES = tuple(placement.POLICIES)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_answer_has_the_keys_of_the_contract(run: Run, policy: str) -> None:
    value = answer(run("-", "--policy", policy, "-o", "json", stdin=problem()))

    assert list(value) == [
        "policy",
        "divisible",
        "tasks",
        "tenants",
        "utilization",
        "left_out",
        "seconds",
        "details",
    ]
    assert (value["policy"], value["divisible"]) == (policy, False)
    assert set(value["utilization"]) == {"vcpus", "memory_gib"}
    assert [set(each) for each in value["tenants"]] == [{"name", "tasks", "dominant_share"}] * 2


@pytest.mark.parametrize("policy", POLICIES)
def test_placed_and_left_out_add_up_to_a_finite_count(run: Run, policy: str) -> None:
    value = answer(run("-", "--policy", policy, "-o", "json", stdin=problem()))

    for demand in ("j1", "j2"):
        placed = sum(each["tasks"] for each in value["tasks"] if each["demand"] == demand)
        out = [each for each in value["left_out"] if each["demand"] == demand]
        assert placed + sum(each["count"] for each in out) == 3
        assert all(each["reason"] for each in out)


def test_first_fit_serves_demands_in_file_order(run: Run) -> None:
    value = answer(run("-", "--policy", "first_fit", "-o", "json", stdin=problem()))

    assert value["tasks"] == [{"demand": "j1", "host": "s1", "tasks": 3}]
    assert value["tenants"] == [
        {"name": "u1", "tasks": 3, "dominant_share": 0.75},
        {"name": "u2", "tasks": 0, "dominant_share": 0.0},
    ]
    assert value["utilization"] == {"vcpus": 0.75, "memory_gib": 0.75}
    assert value["left_out"] == [{"demand": "j2", "count": 3, "reason": "no_room"}]


def test_a_class_of_hosts_is_reported_as_one_total(run: Run) -> None:
    hosts = [{"name": "s", "capacity": [4, 8], "count": 3}]

    value = answer(run("-", "--policy", "first_fit", "-o", "json", stdin=problem(hosts=hosts)))

    assert value["tasks"] == [
        {"demand": "j1", "host": "s", "tasks": 3},
        {"demand": "j2", "host": "s", "tasks": 3},
    ]


def test_what_runs_already_counts_in_shares_and_in_utilization(run: Run) -> None:
    parts = {
        "hosts": [{"name": "s1", "capacity": [4, 8], "free": [2, 4]}],
        "tenants": [{"name": "u1"}, {"name": "u2", "held": [2, 4]}],
        "demands": [{"name": "j1", "tenant": "u1", "per_vm": [1, 2], "count": 1}],
    }

    value = answer(run("-", "--policy", "best_fit_drfh", "-o", "json", stdin=problem(**parts)))

    assert [each["dominant_share"] for each in value["tenants"]] == [0.25, 0.5]
    assert value["utilization"] == {"vcpus": 0.75, "memory_gib": 0.75}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unbounded_count_leaves_nothing_out(run: Run, policy: str) -> None:
    demands = [
        {"name": "j1", "tenant": "u1", "per_vm": [1, 2]},
        {"name": "huge", "tenant": "u2", "per_vm": [99, 2]},
        {"name": "nothing", "tenant": "u2", "per_vm": [0, 0]},
    ]

    # a slot for each core, so that slots hold what the host holds
    stdin = problem(demands=demands, parameters={"slots": 4})
    value = answer(run("-", "--policy", policy, "-o", "json", stdin=stdin))

    assert value["tasks"] == [{"demand": "j1", "host": "s1", "tasks": 4}]
    assert value["left_out"] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_what_can_never_fit_says_so(run: Run, policy: str) -> None:
    tenant = {"tenant": "u1", "count": 2}
    demands = [
        {"name": "huge", "per_vm": [99, 2], **tenant},
        {"name": "nowhere", "per_vm": [1, 1], "requires": ["gpu"], **tenant},
        {"name": "nothing", "per_vm": [0, 0], **tenant},
    ]

    value = answer(run("-", "--policy", policy, "-o", "json", stdin=problem(demands=demands)))

    assert value["left_out"] == [
        {"demand": "huge", "count": 2, "reason": "no_host_large_enough"},
        {"demand": "nowhere", "count": 2, "reason": "no_eligible_host"},
        {"demand": "nothing", "count": 2, "reason": "nothing_asked"},
    ]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_same_file_and_seed_same_bytes_but_for_times(run: Run, policy: str, example: Path) -> None:
    arguments = (str(example), "--policy", policy, "--seed", "3", "-o", "json", "--details")

    first, second = answer(run(*arguments)), answer(run(*arguments))

    assert json.dumps(untimed(first)) == json.dumps(untimed(second))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_tables_print_for_every_example(run: Run, policy: str, example: Path) -> None:
    ended = run(str(example), "--policy", policy, "--details")

    assert (ended.status, ended.err) == (0, "")
    for heading in ("Tenants", "Placements", "Utilization", "Details"):
        assert heading in ended.out


def test_the_catalogue_is_listed_with_kind_paper_guarantees_and_complexity(run: Run) -> None:
    listed = answer(run("--list", "-o", "json"))["policies"]

    names = [each["name"] for each in listed]
    assert names == sorted({*placement.POLICIES, *MECHANISMS})
    for each in listed:
        assert each["kind"] == ("mechanism" if each["name"] in MECHANISMS else "policy")
        texts = [each[key] for key in ("summary", "paper", "guarantees", "complexity")]
        assert all(texts)
        assert "not told" not in texts
    table = run("--list")
    assert all(f"{name} (" in table.out for name in names)


def test_the_catalogue_keeps_to_the_width_of_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")

    lines = run("--list").out.splitlines()

    assert max(map(len, lines)) <= 72
    kinds = [line.partition("(")[2].partition(")")[0] for line in lines if line[:1].strip()]
    assert kinds.index("mechanism") == len(placement.POLICIES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-", "--policy", "fugo"), "did you mean fuga?"),
        (("-",), "give a policy with --policy"),
        ((), "give a problem file"),
        (("/nowhere/p.json", "--policy", "fuga"), "/nowhere/p.json: cannot be read"),
        (("/", "--policy", "fuga"), "/: is a directory"),
        (("a\0b", "--policy", "fuga"), "cannot be read"),
        (("-", "--policy", "fuga", "--seed", "-1"), "--seed must be from 0"),
        (("-", "--policy", "fuga", "--seed", "x"), "--seed"),
        (("-", "--policy", "fuga", "-o", "yaml"), "yaml"),
    ],
)
def test_a_call_that_cannot_be_meant_ends_with_status_2(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    ended = run(*arguments, stdin=problem())

    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 1}, "parameters.alpha: must be"),
        ({"alpha": "x"}, "parameters.alpha: must be"),
        ({"eta": 0}, "parameters.eta: must be"),
        ({"eta": True}, "parameters.eta: must be"),
        ({"overload": -1}, "parameters.overload: must be"),
        ({"quota": "yes"}, "parameters.quota: must be"),
        ({"equilibrium": "exakt"}, "parameters.equilibrium: must be"),
        ({"ranking": ["gpu"]}, "parameters.ranking"),
        ({"ranking": []}, "parameters.ranking"),
        ({"etta": 5}, 'did you mean "eta"'),
        ({"strategies": {"s9": [[1, 0]]}}, "parameters.strategies.s9: no host"),
        ({"strategies": {"s1": [[1]]}}, "parameters.strategies.s1[0]: must have 2"),
        ({"strategies": {"s1": [[1, -1]]}}, "parameters.strategies.s1[0][1]: must be"),
        ({"strategies": {"s1": [[1, 0.5]]}}, "parameters.strategies.s1[0][1]: must be"),
        ({"strategies": {"s1": []}}, "parameters.strategies.s1"),
        ({"strategies": []}, "parameters.strategies: must be an object"),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_bad_parameter_is_told_with_its_place_whoever_decides(
    run: Run, policy: str, parameters: dict[str, Any], message: str
) -> None:
    ended = run("-", "--policy", policy, stdin=problem(parameters=parameters))

    assert ended.status == 2, ended.out
    assert message in ended.err


def test_a_parameter_of_the_command_line_replaces_that_of_the_file(run: Run) -> None:
    unbounded = [
        {"name": "j1", "tenant": "u1", "per_vm": [1, 2]},
        {"name": "j2", "tenant": "u2", "per_vm": [2, 2]},
    ]
    file = problem(demands=unbounded, parameters={"max_rounds": 1, "pareto": False})
    call = ("-", "--policy", "psdsf", "-o", "json")

    central = json.loads(run(*call, "-p", "max_rounds=null", stdin=file).out)
    distributed = json.loads(
        run(*call, "-p", "procedure=distributed", "-p", "max_rounds=50", stdin=file).out
    )
    raised = json.loads(run(*call, "-p", "pareto=true", stdin=file).out)

    assert [each["dominant_share"] for each in distributed["tenants"]] == pytest.approx(
        [each["dominant_share"] for each in central["tenants"]]
    )
    assert distributed["details"]["residual"] < 1e-9
    assert distributed["details"]["leaps"] == 0
    assert "pareto_factor" in raised["details"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("procedure=fast", "-p procedure: must be"),
        ("procedure=3", "-p procedure: must be"),
        ("proceduer=distributed", 'did you mean "procedure"'),
        ("tolerance=NaN", "-p tolerance: must be"),
        ("strategies=[]", "-p strategies: must be an object"),
        ('strategies={"s1": [[1]]}', "-p strategies.s1[0]: must have 2"),
        ("seed=3", "give the seed with --seed"),
        ("procedure", "expected NAME=VALUE"),
        ("=distributed", "expected NAME=VALUE"),
    ],
)
def test_a_bad_parameter_of_the_command_line_is_told_with_its_option(
    run: Run, word: str, message: str
) -> None:
    policy = "fuga" if "strategies" in word else "psdsf"

    ended = run("-", "--policy", policy, "-p", word, stdin=problem())

    assert ended.status == 2, ended.out
    assert message in ended.err


def test_a_parameter_is_given_once(run: Run) -> None:
    ended = run("-", "--policy", "fuga", "-p", "eta=3", "-p", "eta=4", stdin=problem())

    assert ended.status == 2
    assert "eta" in ended.err


def test_several_errors_are_told_at_once(run: Run) -> None:
    hosts = [{"name": "s1", "capacity": [-1, 8], "count": 0}]

    ended = run("-", "--policy", "fuga", stdin=problem(hosts=hosts))

    assert ended.status == 2
    assert ended.err.splitlines() == [
        "fuga: standard input: 2 errors",
        "  hosts[0].capacity[0]: must be ≥ 0, found -1",
        "  hosts[0].count: must be a whole number from 1 to 200,000, found 0",
    ]


def test_names_that_look_like_markup_are_printed_as_they_are(run: Run) -> None:
    hosts = [{"name": "[red]s1[/red]", "capacity": [4, 8]}]

    ended = run("-", "--policy", "first_fit", stdin=problem(hosts=hosts))

    assert "[red]s1[/red]" in ended.out


def test_a_terminal_that_knows_ascii_only_gets_an_answer() -> None:
    hosts = [{"name": "host-é", "capacity": [4, -8]}, {"name": "host-ü", "capacity": [4, 8]}]
    bad = problem(hosts=hosts)
    good = problem(hosts=hosts[1:])
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    for data, status in ((bad, 2), (good, 0)):
        for output in ("table", "json"):
            ended = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "controller.cli.problems.solve",
                    "-",
                    "--policy",
                    "first_fit",
                    "-o",
                    output,
                ],
                input=data,
                env=environment,
                capture_output=True,
                check=False,
                cwd=EXAMPLES.parents[1],
            )
            assert ended.returncode == status, ended.stderr
            assert b"Traceback" not in ended.stderr


def test_help_does_not_load_numpy() -> None:
    program = (
        "import sys; sys.argv = ['fuga', '--help']\n"
        "from controller.cli.problems import solve\n"
        "try:\n    solve.main()\n"
        "except SystemExit:\n    pass\n"
        "sys.exit('numpy' in sys.modules)"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=EXAMPLES.parents[1]
    )

    assert ended.returncode == 0
    assert b"--policy" in ended.stdout


def test_gangs_and_what_games_hand_out_are_told_by_name(run: Run) -> None:
    requested = [
        {"name": "j1", "tenant": "u1", "per_vm": [1, 2], "count": 3, "min_count": 2},
        {"name": "j2", "tenant": "u2", "per_vm": [1, 2], "count": 3},
    ]

    ended = run("-", "--policy", "fuga", "-o", "json", stdin=problem(demands=requested))

    details = json.loads(ended.out)["details"]
    assert details["gangs"] == [{"demand": "j1", "host": "s1", "vms": 2}]
    assert [game["handed_out"] for game in details["games"]] == [{"j2": 2}]


@pytest.mark.parametrize("policy", POLICIES)
def test_whole_vm_answers_tell_what_they_are_judged_by(run: Run, policy: str) -> None:
    value = problem(
        hosts=[{"name": "s1", "capacity": [4, 8], "free": [3, 7]}],
        tenants=[
            {"name": "u1", "held": [1, 1], "parent": "team"},
            {"name": "u2", "parent": "team"},
            {"name": "team"},
        ],
    )

    shown = answer(run("-", "--policy", policy, "-o", "json", stdin=value))

    details, shares = shown["details"], shown["details"]["shares"]
    assert {name: each["before"] for name, each in shares.items()} == {
        "u1": 0.25,
        "u2": 0.0,
        "team": 0.25,
    }
    assert [shares[each["name"]]["after"] for each in shown["tenants"]] == [
        each["dominant_share"] for each in shown["tenants"]
    ]
    # Three cores are left: one for u1, which has one, and two for u2.
    assert [shares[name]["fair"] for name in ("u1", "u2")] == pytest.approx([0.5, 0.5])
    assert details["fair_distance"] >= 0
    assert details["utilization_bound"]["vcpus"] == pytest.approx(1.0)
    assert all(
        shown["utilization"][name] <= most + 1e-9
        for name, most in details["utilization_bound"].items()
    )
    assert all(seconds >= 0 for seconds in details["timings"].values())


def test_people_see_fair_shares_and_bounds_beside_what_is(run: Run) -> None:
    shown = run("-", "--policy", "fuga", stdin=problem()).out
    divided = run("-", "--policy", "drf", stdin=problem()).out

    assert ("fair share" in shown, "at most" in shown) == (True, True)
    assert ("fair share" in divided, "at most" in divided) == (False, False)
