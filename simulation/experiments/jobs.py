"""The jobs of a study as files of its folder, which the machines of a fleet share.

``DIR/fleet/NAME.json`` says what is to be run, and is the lock of ``DIR/runs/NAME``: the process
that holds it may write there, or take the job back. The system lets go of it with the process that
holds it, however that ends; in a folder on a file server, the server does so with the machine. So
no clock decides which worker is dead, and a job that is sent twice runs once.

Only the submitter of the study writes a job's file, and only under its lock; it is
never replaced by another file, whose lock would be another one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, Final, TextIO, TypeVar

from service.version import engine_version
from simulation.errors import InputError, SimulationError
from simulation.experiments.run import RunProgress, replace_file
from simulation.experiments.specs import RunSpec
from simulation.experiments.study import RUNS

FLEET: Final = "fleet"
_STUDY: Final = "study"
_STOP: Final = "stop"
#: `struct flock` of Linux with 64 bits: type, whence, start, length, process.
_FLOCK: Final = "hhqqi"

T = TypeVar("T")


class JobTakenError(SimulationError):
    """Another process runs the job in its folder."""


class SharedFolderError(SimulationError):
    """A fleet cannot share this folder as it is."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"{path}: {error.strerror}; a fleet's users need to write there, and to hold"
            " POSIX locks that all machines see (NFS 4, CephFS)"
        )


@cache
def software_versions() -> str:
    """Return the versions of the software on which a study's results depend."""
    libraries = ("numpy", "scipy", "pyarrow")
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    return f"fuga {engine_version()}, Python {python_version()}, {versions}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a study, as a machine of the fleet receives it."""

    spec: RunSpec
    cwd: str  #: where relative paths of the spec begin
    digest: str  #: of the spec with its files, as the submitter sees them
    as_csv: bool
    made_by: str = field(default_factory=software_versions)

    def text(self) -> str:
        """Return the text of the job's file, which `of` reads."""
        document = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps({**document, "spec": self.spec.document()}, indent=2) + "\n"

    @classmethod
    def of(cls, text: str) -> Job:
        """Read a job from the text of its file.

        Raises
        ------
        InputError
            If it holds none that this version knows.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            theirs = document["made_by"]
            if theirs != software_versions():
                raise InputError("a job", f"{theirs} submitted it, here is {software_versions()}")
            return cls(**{**document, "spec": RunSpec.of(document["spec"])})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError("a job", f"it is of another version of fuga: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """The reason why a job of a study cannot be done."""

    message: str
    bad_input: bool
    worker: str  #: the worker that reports it


class JobFiles:
    """The files of a study's jobs, for submitters and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fleet = folder / FLEET

    def job_file(self, name: str) -> Path:
        """Return the path of a job's file."""
        return self._fleet / f"{name}.json"

    def run_folder(self, name: str) -> Path:
        """Return the folder that a job writes to."""
        return self.folder / RUNS / name

    @contextmanager
    def submission_lock(self) -> Iterator[None]:
        """Hold the study's submission lock, and clear earlier stop requests.

        Raises
        ------
        JobTakenError
            If another process submits.
        SharedFolderError
            If the folder does not allow it.
        """
        study = self._fleet / _STUDY
        try:
            self._fleet.mkdir(parents=True, exist_ok=True)
            study.touch()
        except OSError as error:
            raise SharedFolderError(study, error) from error
        with file_lock(study) as file:
            if file is None:
                raise JobTakenError(f"{self.folder}: another `fuga simulate` is at this study")
            (self._fleet / _STOP).unlink(missing_ok=True)
            yield

    def submit(self, job: Job) -> None:
        """Write a job's file; an equal job that runs now goes on.

        Raises
        ------
        JobTakenError
            If another job is running that would write to the same folder.
        """
        path, text = self.job_file(job.spec.name), job.text()
        path.touch()
        with file_lock(path) as file:
            if file is None:
                if path.read_text() != text:
                    raise JobTakenError(
                        f"{self.run_folder(job.spec.name)}: a worker is at it with other options; "
                        f"let it end, or stop it by `touch {self._fleet / _STOP}`, and try again"
                    )
                return
            self._file_of(job.spec.name, "failed").unlink(missing_ok=True)
            self._file_of(job.spec.name, "progress").unlink(missing_ok=True)
            found = file.read()
            if found == text:
                return
            if found:
                file.seek(0)
                file.truncate()
            file.write(text)

    def read(self, name: str) -> str | None:
        """Return the text of a job's file; None if the job does not exist or was withdrawn."""
        try:
            return self.job_file(name).read_text() or None
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Return the names of all jobs of the study that were not withdrawn."""
        return sorted(path.stem for path in self._fleet.glob("*.json"))

    def is_taken(self, name: str) -> bool:
        """Return whether a worker runs a job now, without touching its lock."""
        try:
            file = self.job_file(name).open("rb")
        except FileNotFoundError:
            return False
        with file:
            lock_query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file, fcntl.F_GETLK, lock_query)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def withdraw(self, name: str) -> bool:
        """Withdraw a job; return False if it already started."""
        path = self.job_file(name)
        with file_lock(path) as file:
            if file is None:
                return not path.exists()
            path.unlink()  # a process that has it open gets the lock of no job
        return True

    def request_stop(self) -> None:
        """Request all workers of the study to stop and write their results."""
        (self._fleet / _STOP).touch()

    def is_stop_requested(self) -> bool:
        """Return whether `request_stop` was called, or the file was made by hand."""
        return (self._fleet / _STOP).exists()

    def write_progress(self, name: str, progress: RunProgress) -> None:
        """Write the progress of a job to its file."""
        self._write_document(name, "progress", asdict(progress))

    def progress(self, name: str) -> RunProgress | None:
        """Return the last known progress of a job, or None."""
        return self._read_document(name, "progress", RunProgress)

    def write_failure(self, name: str, failure: JobFailure) -> None:
        """Record in a file that a job failed and need not be retried."""
        self._write_document(name, "failed", asdict(failure))

    def failure(self, name: str) -> JobFailure | None:
        """Return the failure of a job, or None."""
        return self._read_document(name, "failed", JobFailure)

    def clear(self) -> None:
        """Remove the fleet's files; the folder then looks like one of a study on one machine.

        A job that is still there belongs to an earlier study: its lock stays.
        """
        if not self.names():
            shutil.rmtree(self._fleet, ignore_errors=True)

    def _file_of(self, name: str, kind: str) -> Path:
        """Return the path of a job's file of this kind: ``progress`` or ``failed``."""
        return self._fleet / f"{name}.{kind}"

    def _write_document(self, name: str, kind: str, document: Mapping[str, Any]) -> None:
        """Write a job's file of this kind, unless the study is over."""
        with suppress(FileNotFoundError):  # the study is over, and no reader is left
            replace_file(self._file_of(name, kind), json.dumps(document).encode())

    def _read_document(self, name: str, kind: str, what: Callable[..., T]) -> T | None:
        """Read a job's file of this kind; None if there is none that can be read."""
        try:
            return what(**json.loads(self._file_of(name, kind).read_text()))
        except (OSError, ValueError, TypeError):  # nothing yet; on a file server, just replaced
            return None


@contextmanager
def file_lock(path: Path) -> Iterator[TextIO | None]:
    """Hold a job file's lock; yield None if another process has it or the file is gone.

    Closing the file anywhere in this process releases the lock.

    Raises
    ------
    SharedFolderError
        If it cannot be written, or the file system has no locks.
    """
    try:
        file = path.open("r+")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise SharedFolderError(path, error) from error
    with file:
        yield file if _try_lock(file) and _exists_unchanged(path, file) else None


def _try_lock(file: TextIO) -> bool:
    """Try to lock a file for this process; return False if another process holds its lock."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise SharedFolderError(Path(file.name), error) from error
    return True


def _exists_unchanged(path: Path, file: TextIO) -> bool:
    """Return whether a locked file still exists; it may be removed before it is locked."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:  # there is none; of a file server, the opened one is no more
        return False
