"""A study on a fleet of workers, coordinated by files of a shared folder.

A message names a job, and is a nudge like those to the workers: brokers lose messages and
repeat them. The submitter watches the files, and sends jobs again that no worker runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from simulation.experiments.jobs import Job, JobFiles
from simulation.experiments.run import RunProgress, read_summary
from simulation.experiments.specs import RunSpec
from simulation.experiments.study import RunFailedError, ended_progress

_LOOK_EVERY_S: Final = 0.5
#: Looking at ten thousand runs is not to be all that a file server does.
_PAUSE_PER_LOOK: Final = 4.0
#: A worker needs some seconds from a message to the lock; a message too many does no harm.
_SEND_AGAIN_S: Final = 10.0
#: Warn after no worker has begun a run for so long.
_SILENCE_S: Final = 30.0


class JobQueue(Protocol):
    """Carries names of a study's jobs to workers; may lose and repeat them."""

    def send(self, folder: Path, name: str) -> bool:
        """Send the name of a job to a worker; return False if nothing can be sent now."""
        ...

    def is_empty(self) -> bool:
        """Return whether no message waits for a worker, as far as is known."""
        ...


class FleetStudy:
    """Runs the simulations of a study on a fleet that shares a folder; resumes earlier runs.

    Parameters
    ----------
    folder : Path
        Each run writes to ``runs/NAME`` below it, as those of `Study` do.
    warn : callable
        Called with a sentence about what keeps the fleet from work, once for each time.
    send_again_s, silence_s : float
        So long after a message a job that no worker runs is sent again, if no message
        waits any more; and so long nothing happens before there is a warning.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        folder: Path,
        queue: JobQueue,
        *,
        as_csv: bool,
        warn: Callable[[str], None],
        send_again_s: float = _SEND_AGAIN_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._specs = list(specs)
        self._files = JobFiles(folder.resolve())
        self._queue = queue
        self._as_csv = as_csv
        self._warn = warn
        self._send_again_s = send_again_s
        self._silence_s = silence_s
        self._stopping = False
        self._leaving = False
        self._stop_requested = False
        self._failed: RunFailedError | None = None
        self._queried_at = 0.0
        self._idle_since: float | None = None
        self._warned_idle = False
        self._sent: dict[str, float] = {}
        self._taken: set[str] = set()
        self._broker_answers = True
        self._left: dict[str, str] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._progress: dict[str, RunProgress] = {}

    def stop(self) -> None:
        """Stop the study's runs after they write their results; a second call does not wait."""
        self._leaving = self._stopping
        self._stopping = True

    def run(self, report: Callable[[Mapping[str, RunProgress]], None]) -> list[dict[str, Any]]:
        """Run the whole study on the fleet; return the summaries of runs that began, in order.

        Raises
        ------
        RunFailedError
            If one failed; the others have been stopped and have kept what they had.
        JobTakenError
            If another process works in the folder.
        SharedFolderError
            If it is none that a fleet can work in.
        """
        with self._files.submission_lock():
            self._submit_jobs()
            while self._left and not self._leaving:
                if self._stopping:
                    self._request_stop()
                began, waited = time.monotonic(), len(self._left)
                free = self._poll_progress()
                took = time.monotonic() - began
                if not self._stopping:
                    self._warn_if_idle(idle=len(free) == waited)
                    self._send_jobs(free)
                report(self._progress)
                if self._left:
                    time.sleep(max(_LOOK_EVERY_S, _PAUSE_PER_LOOK * took))
            if not self._left:
                self._files.clear()
        if self._failed is not None:
            raise self._failed
        return [self._found[spec.name] for spec in self._specs if spec.name in self._found]

    def _submit_jobs(self) -> None:
        """Write the job of every run that has not ended, and store all digests.

        Jobs of an earlier study in this folder that are in this one no more are taken
        back; one that runs goes on, and its end is not awaited.
        """
        digests = {spec.name: spec.digest() for spec in self._specs}
        for name in self._files.names():
            if name not in digests:
                self._files.withdraw(name)
        cwd = str(Path.cwd())
        for spec in self._specs:
            digest = digests[spec.name]
            summary = read_summary(self._files.run_folder(spec.name), digest)
            if summary is None or not summary["finished"]:
                self._files.submit(Job(spec=spec, cwd=cwd, digest=digest, as_csv=self._as_csv))
        self._left = digests

    def _poll_progress(self) -> list[str]:
        """Read the progress of every run of the study; return the jobs without a worker."""
        free, taken = [], set()
        for name, digest in list(self._left.items()):
            if self._files.is_taken(name):
                taken.add(name)
                if (far := self._files.progress(name)) is not None:
                    self._progress[name] = far
                # Its message has arrived; if its worker dies, the next one is due at once.
                self._sent.pop(name, None)
            elif not self._is_job_over(name, digest):
                self._progress.pop(name, None)
                if name not in self._taken:  # else its failure may still be written
                    free.append(name)
            elif self._files.withdraw(name):
                del self._left[name]
                # Its process has released it: this is the last report.
                last = self._progress.pop(name, None)
                if (summary := read_summary(self._files.run_folder(name), digest)) is not None:
                    self._found[name] = summary
                    self._progress[name] = ended_progress(last)
        self._taken = taken
        return free

    def _request_stop(self) -> None:
        """Request the workers to stop the study's runs, once, and warn that they are waited for."""
        if self._stop_requested:
            return
        self._stop_requested = True
        self._files.request_stop()
        if self._taken:
            self._warn(
                f"{len(self._taken)} runs are to write what they have; Ctrl-C again leaves without"
                " waiting for them"
            )

    def _warn_if_idle(self, *, idle: bool) -> None:
        """Warn once when no run of the study has had a worker for a while."""
        now = time.monotonic()
        if not idle or self._idle_since is None:
            self._idle_since, self._warned_idle = now, False
        elif not self._warned_idle and now - self._idle_since > self._silence_s:
            self._warned_idle = True
            self._warn(
                "no worker has taken a run: is there a `fuga simulation-worker` on this broker,"
                f" on a folder that has {self._files.folder}? Its log says what keeps it"
            )

    def _is_job_over(self, name: str, digest: str) -> bool:
        """Return whether a job without a worker need not run: it has ended, or the study stops."""
        summary = read_summary(self._files.run_folder(name), digest)
        if summary is not None and summary["finished"]:
            return True
        failure = self._files.failure(name)
        if failure is not None:
            self._failed = self._failed or RunFailedError(
                name, f"{failure.message} (on {failure.worker})", bad_input=failure.bad_input
            )
            self._stopping = True
        return self._stopping

    def _send_jobs(self, free: Sequence[str]) -> None:
        """Send the jobs without a worker to the fleet; resend those whose message was lost."""
        now = time.monotonic()
        due = [name for name in free if name not in self._sent]
        again = [
            name
            for name in free
            if name in self._sent and now - self._sent[name] > self._send_again_s
        ]
        if again and now - self._queried_at > self._send_again_s:
            self._queried_at = now
            due += again if self._queue.is_empty() else []
        for name in due:
            if not self._queue.send(self._files.folder, name):
                if self._broker_answers:
                    self._warn("the broker does not answer; what runs goes on, and so do we")
                self._broker_answers = False
                return
            self._broker_answers = True
            self._sent[name] = now
