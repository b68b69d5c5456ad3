"""Run the tests; print on what they ran, the slowest, and those that libvirt failed.

Usage: run_tests.py [pytest arguments]     (`make test ARGS="-k ledger"`)

FUGA_TESTS is `short` (`make test`, the default), `rest` (`make test-all`) or `all` (ADR 0090).

Tests that take the whole machine run first, alone (ADR 0080). Then three processes run the tests
without hosts: these wait for servers a third of their time, and so keep both cores of the smallest
machine busy. Those with hosts run afterwards, a module at a time, the long ones first (ADR 0073).
With CI=true a skipped test on real guests or PostgreSQL fails. Tests that failed under a fault that
is proven to be libvirt's run once more, alone (ADR 0049).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TESTS_FAILED = 1  # pytest's exit status when tests ran and some failed
NO_TESTS = 5  # pytest's exit status for "nothing collected"
GROUNDS = {
    "sqlite": "a register center on SQLite",
    "postgresql": "a register center on PostgreSQL",
    "test_driver": "libvirt's test driver",
    "qemu": "real QEMU guests",
}
#: Where tests with hosts are, in the order in which modules begin: those that take minutes first,
#: so that at the end no process waits for another. `tests/conftest.py` refuses any elsewhere.
WITH_HOSTS = (
    "tests/contract/test_move_faults.py",
    "tests/system/test_operating_hosts.py",
    "tests/system/test_by_mouse.py",
    "tests/e2e/cli/test_up_and_down.py",
    "tests/contract/test_guests_apart.py",
    "tests/contract/test_live_moves.py",
    "tests/docs/test_operations_guide.py",
    "tests/system",
    "tests/integration",
    "tests/contract",
    "tests/unit/hypervisor/test_hypervisor_connection.py",
    "tests/unit/registry/test_registry_image_files.py",
)


@dataclass(frozen=True)
class PytestGroup:
    """Tests that one pytest runs; without ``paths`` it looks for them everywhere."""

    name: str
    options: Sequence[str]
    paths: Sequence[str] = ()

    def arguments(self, more: Sequence[str]) -> list[str]:
        """Return the arguments of pytest; named paths replace those of the suite."""
        has_paths = any(Path(each.partition("::")[0]).exists() for each in more)
        paths = [] if has_paths else [each for each in self.paths if Path(each).exists()]
        return [*self.options, *more, *paths]


#: What runs side by side, one line after the other. A test that is "alone" takes both cores.
GROUPS = (
    (PytestGroup("alone", ("-n", "0", "-m", "alone"), ("tests/chaos",)),),
    (PytestGroup("without hosts", ("-n", "3", "-m", "not qemu and not test_driver")),),
    (
        PytestGroup(
            "with hosts",
            # A module is one process's: its hosts, and the fuga that it shares, are started once.
            (
                *("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"),
                *("-m", "(qemu or test_driver) and not alone"),
            ),
            WITH_HOSTS,
        ),
    ),
)
NEEDED_BY_CI = ("postgresql", "qemu")
#: Which tests pytest runs, as `tests/selection.py` divides them; without it, all (ADR 0090).
PART = "FUGA_TESTS"
SHORT, REST = "short", "rest"
NAMED_SLOWEST = 20


@dataclass
class Account:
    """What `tests/account.py` wrote of the tests, added up over pytest's processes."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)  #: of each test
    failed: list[str] = field(default_factory=list)
    libvirt: dict[str, str] = field(default_factory=dict)  #: faults of its own, by failed test

    @classmethod
    def read(cls, path: Path) -> Account:
        """Add up the lines of the file at ``path``; no file is no test."""
        account = cls()
        for line in path.read_text().splitlines() if path.exists() else ():
            part = json.loads(line)
            account.outcomes.update(part["outcomes"])
            account.seconds.update(part["seconds"])
            account.failed += part["failed"]
            account.libvirt |= part["libvirt"]
        return account

    @property
    def failed_by_libvirt(self) -> bool:
        """Whether tests failed, and a fault of libvirt's is proven of each."""
        return bool(self.failed) and self.libvirt.keys() >= set(self.failed)


def _run_side_by_side(groups: Sequence[PytestGroup], arguments: Sequence[str]) -> list[int]:
    """Exit statuses of the groups; the first one's output is seen as it comes, then the others'."""
    running = [_RunningPytest(each, arguments) for each in groups]
    try:
        return [each.show_until_ended() for each in running]
    except KeyboardInterrupt:  # reached them too: each ends the servers that it started
        for each in running:
            each.process.wait()
        raise


class _RunningPytest:
    """A group's pytest, whose output waits in a file until somebody looks."""

    def __init__(self, group: PytestGroup, arguments: Sequence[str]) -> None:
        self.name = group.name
        self.started = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the group
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", *group.arguments(arguments)],
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def show_until_ended(self) -> int:
        print(f"--- tests {self.name} ---", flush=True)
        shown, ended = 0, False
        while not ended:
            ended = self.process.poll() is not None
            text = os.pread(self.output.fileno(), 1 << 24, shown)
            shown += len(text)
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            time.sleep(0 if ended else 0.5)
        print(f"--- {time.monotonic() - self.started:.0f} s ---", flush=True)
        return self.process.wait()


def main() -> int:
    """Run the groups and print the counts."""
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="fuga-test-") as folder:
        path = Path(folder) / "account"
        os.environ["FUGA_TEST_ACCOUNT"] = str(path)
        os.environ.setdefault(PART, SHORT)
        # Hundreds of processes are started: each would compile all that it imports.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        statuses = [each for line in GROUPS for each in _run_side_by_side(line, arguments)]
        account = Account.read(path)
    if account.outcomes:  # a group may have no test of this part
        statuses = [0 if status == NO_TESTS else status for status in statuses]
    passed_alone: list[str] = []
    if (
        set(statuses) <= {0, TESTS_FAILED}
        and account.failed_by_libvirt
        and _pass_when_run_alone(account)
    ):
        passed_alone, statuses = account.failed, [0]
    _print_summary(account, passed_alone)
    if os.environ.get("CI") == "true":
        for ground in NEEDED_BY_CI:
            if account.outcomes[f"{ground} skipped"]:
                print(f"CI needs {GROUNDS[ground]}, but tests were skipped (reasons above)")
                return 1
    return max(abs(status) for status in statuses)  # below 0: a signal ended pytest


def _pass_when_run_alone(account: Account) -> bool:
    del os.environ["FUGA_TEST_ACCOUNT"]  # the counts are of the first run
    return _run_side_by_side([PytestGroup("that failed, alone", account.failed)], []) == [0]


def _print_summary(account: Account, passed_alone: list[str]) -> None:
    outcomes = account.outcomes
    modules: Counter[str] = Counter()
    for test, seconds in account.seconds.items():
        modules[test.partition("::")[0]] += seconds
    for what, found in (("tests", account.seconds), ("modules", modules)):
        print(f"the slowest {what}, in seconds:")
        for name, seconds in found.most_common(NAMED_SLOWEST):
            print(f"{seconds:7.1f}  {name}")
    for test in passed_alone:
        print(f"LIBVIRT: {test} failed ({account.libvirt[test]}) and passed alone")
    for ground, words in GROUNDS.items():
        print(
            f"ran on {words}: {outcomes[f'{ground} passed'] + outcomes[f'{ground} failed']}"
            f" (skipped: {outcomes[f'{ground} skipped']})"
        )
    print(
        f"{outcomes['all passed']} passed, {outcomes['all failed']} failed, "
        f"{outcomes['all skipped']} skipped"
    )


if __name__ == "__main__":
    # A shell that starts this in the background has Ctrl-C ignored, in all that comes of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
