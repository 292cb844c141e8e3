"""Sweeps: many runs of one experiment, in processes of this machine or on a Ray cluster.

What counts is in the folders of the runs. A sweep that is started again skips what is finished, and goes on with what
was interrupted; a run that fails, or whose process dies, is tried once more from its last checkpoint.
"""

import dataclasses
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from softly_lab.files import Lines
from softly_lab.runner import Experiment

ATTEMPTS = 2


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to do: an experiment by its name, the options, and where."""

    experiment: str
    preset: str
    options: dict[str, Any]
    folder: Path

    @property
    def finished(self) -> bool:
        return (self.folder / "result.json").exists()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a job: its last measurement, or an error with its traceback."""

    job: Job
    final: dict[str, Any] | None
    error: str | None


class Executor(Protocol):
    """Runs jobs, some at a time; yields each with None, or with what went wrong."""

    def __call__(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, str | None]]: ...


def jobs(
    experiment: Experiment, preset: str, values: Mapping[str, Sequence[Any]], place: Callable[[Any], Path]
) -> Iterator[Job]:
    """All combinations of values, one at a time; what can't be is refused before the first of them.

    A name may be several, parted by commas, whose values go together: tuples of one for each.
    """

    def options_of(names: str, choice: Any) -> dict[str, Any]:
        return dict(zip(names.split(","), choice, strict=True)) if "," in names else {names: choice}

    for names, choices in values.items():
        for choice in choices:
            experiment.configure(preset, **options_of(names, choice))

    def combine() -> Iterator[Job]:
        for chosen in itertools.product(*values.values()):
            options: dict[str, Any] = {}
            for names, choice in zip(values, chosen, strict=True):
                options |= options_of(names, choice)
            yield Job(experiment.name, preset, options, place(experiment.configure(preset, **options)))

    return combine()


def sweep(jobs: Iterator[Job], executor: Executor, results: Path) -> Iterator[Outcome]:
    """Do all jobs that are not finished; every outcome of this time or an earlier one is one line of ``results``."""
    lines = Lines(results)
    known = {line.get("folder") for line in lines.read() if line.get("error") is None}

    def outcome(job: Job, error: str | None) -> Outcome:
        final = None if error else json.loads((job.folder / "result.json").read_text())["final"]
        made = Outcome(job, final, error)
        if job.folder.name not in known:
            known.add(job.folder.name)
            line = {"folder": job.folder.name, "options": job.options, "final": final, "error": error}
            lines.append(
                line, unless=lambda other: other.get("folder") == line["folder"] and other.get("error") is None
            )
        return made

    def unfinished() -> Iterator[Job]:
        for job in jobs:
            if job.finished:
                done.append(job)
            else:
                yield job

    done: list[Job] = []
    for job, error in executor(unfinished()):
        yield from (outcome(earlier, None) for earlier in done)
        done.clear()
        yield outcome(job, error)
    yield from (outcome(earlier, None) for earlier in done)


def get(name: str, workers: int = 1, address: str | None = None) -> Executor:
    """The executor of a name: "local" or "ray"."""
    if name == "local":
        return Local(workers)
    if name == "ray":
        return Ray(workers, address)
    raise ValueError(f"--executor must be local or ray, got {name!r}.")


def _asked_to_end(answer: Any) -> Any:
    """Say what SIGTERM does, so that no worker outlives its sweep; what it did before, None in other threads."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, answer)


class Local:
    """A process for each job, ``workers`` at a time."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __call__(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, str | None]]:
        running: dict[subprocess.Popen[bytes], tuple[Job, int]] = {}
        waiting = True
        before = _asked_to_end(lambda number, frame: sys.exit(128 + number))
        try:
            while running or waiting:
                while waiting and len(running) < self.workers:
                    job = next(jobs, None)
                    if job is None:
                        waiting = False
                    else:
                        running[self._start(job)] = job, 1
                for process in [p for p in running if p.poll() is not None]:
                    job, attempt = running.pop(process)
                    process.communicate()
                    if process.returncode == 0 and job.finished:
                        yield job, None
                    elif attempt < ATTEMPTS:
                        running[self._start(job)] = job, attempt + 1
                    else:
                        yield job, self._reason(job, process.returncode)
                time.sleep(0.05)
        finally:
            for process in running:
                process.terminate()
                process.communicate()
            if before is not None:
                _asked_to_end(before)

    @staticmethod
    def _start(job: Job) -> "subprocess.Popen[bytes]":
        job.folder.mkdir(parents=True, exist_ok=True)
        arguments = [job.experiment, job.preset, json.dumps(job.options), str(job.folder)]
        with (job.folder / "error.txt").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "softly_lab.worker", *arguments], stdin=subprocess.PIPE, stderr=errors
            )

    @staticmethod
    def _reason(job: Job, code: int) -> str:
        said = (job.folder / "error.txt").read_text(errors="replace").strip()
        return said or (f"killed by signal {-code}" if code < 0 else f"ended with code {code}")


class Ray:
    """Tasks of a Ray cluster, ``workers`` at a time; the folder of runs has to be one that all its machines see."""

    def __init__(self, workers: int, address: str | None) -> None:
        self.workers, self.address = workers, address

    def __call__(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, str | None]]:
        try:
            import ray
        except ImportError:
            raise ValueError('--executor ray needs the package ray: pip install "softly[ray]"') from None
        from softly_lab.worker import work

        ours = not ray.is_initialized()
        if ours:
            ray.init(address=self.address, num_cpus=None if self.address else self.workers, log_to_driver=False)
        task = ray.remote(num_cpus=1, max_retries=0)(work)
        running: dict[Any, tuple[Job, int]] = {}

        def start(job: Job, attempt: int) -> None:
            arguments = job.experiment, job.preset, json.dumps(job.options), str(job.folder.resolve())
            running[task.remote(*arguments)] = job, attempt

        try:
            waiting = True
            while running or waiting:
                while waiting and len(running) < self.workers:
                    job = next(jobs, None)
                    if job is None:
                        waiting = False
                    else:
                        start(job, 1)
                ready, _ = ray.wait(list(running), num_returns=1, timeout=1.0) if running else ([], [])
                for reference in ready:
                    job, attempt = running.pop(reference)
                    try:
                        ray.get(reference)
                        missing = f"{job.folder} has no result: do all machines see this folder?"
                        yield job, None if job.finished else missing
                    except ray.exceptions.RayError as error:
                        if attempt < ATTEMPTS:
                            start(job, attempt + 1)
                        else:
                            yield job, str(error).strip()
        finally:
            if ours:
                ray.shutdown()
