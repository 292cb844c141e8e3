"""Runs of experiments: a config and a seed in, a folder with all that was measured out.

An experiment is a frozen config and a `Task`, which works in steps. What a step draws at random follows from the seed
and the number of the step, so that a run that was killed goes on as if nothing had happened.
"""

import dataclasses
import fcntl
import hashlib
import io
import itertools
import json
import math
import platform
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import softly
from softly_lab.files import Lines, load_state, read_lines, save_state, write
from softly_lab.parallel import World

PRESETS = ("quick", "standard", "full")


class Task(ABC):
    """What a run does.

    Attributes:
        steps: How many there are.
        report: Steps between two measurements.
        data: What was learned from, for tables; with the word "stand-in" where it is one.
    """

    steps: int
    report: int
    data: str

    @abstractmethod
    def step(self, number: int) -> None:
        """Do step ``number``, from 0; what it draws at random it draws from torch's own generator."""

    @abstractmethod
    def measure(self) -> dict[str, float]:
        """What has been reached; called every ``report`` steps, and at the end."""

    @abstractmethod
    def state(self) -> Any:
        """All that changes from step to step: tensors, numbers and texts in lists and dictionaries."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Go back to where `state` was called."""

    def pictures(self) -> dict[str, Any]:
        """Figures of matplotlib by their captions, drawn at the end."""
        return {}


def option(default: Any, help: str, *, choices: tuple[str, ...] = (), least: float | None = None) -> Any:
    """A field of a config: its default, what it is, and what it may be."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices, "least": least})


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment of the thesis.

    Attributes:
        name: Of the module that has it, with hyphens.
        summary: One line on what it does.
        chapter: Where in the thesis.
        config: The frozen dataclass of its options; one of them is ``seed``.
        start: Makes the task of a config.
        presets: By "quick", "standard" and "full", what differs from the config's defaults.
        compared: By presets, options and the values that are compared when all experiments are reproduced; options
            parted by commas have tuples of values.
        overview: Figures of matplotlib by their captions, of all runs that a report has.
    """

    name: str
    summary: str
    chapter: int
    config: type
    start: Callable[[Any], Task]
    presets: Mapping[str, Mapping[str, Any]]
    compared: Mapping[str, Mapping[str, Sequence[Any]]] = dataclasses.field(default_factory=dict)
    overview: Callable[[Sequence["Result"]], Mapping[str, Any]] = lambda runs: {}

    def configure(self, preset: str = "quick", **options: Any) -> Any:
        """The config of a preset with other options; refuses what they can't be."""
        if preset not in self.presets:
            raise ValueError(f"{self.name}: preset must be one of {', '.join(self.presets)}, got {preset!r}.")
        known = {field.name: field for field in dataclasses.fields(self.config)}
        for name in options:
            if name not in known:
                raise ValueError(f"{self.name}: there is no option {name!r}; there are {', '.join(known)}.")
        config = self.config(**{**self.presets[preset], **options})
        for name, field in known.items():
            self._check(name, getattr(config, name), field.metadata)
        return config

    def _check(self, name: str, value: Any, metadata: Mapping[str, Any]) -> None:
        choices, least = metadata.get("choices"), metadata.get("least")
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, float) and not math.isfinite(one):
                raise ValueError(f"{self.name}: {name} must be finite, got {one}.")
            if choices and one is not None and one not in choices:
                raise ValueError(f"{self.name}: {name} must be one of {', '.join(choices)}, got {one!r}.")
            if least is not None and one is not None and one < least:
                raise ValueError(f"{self.name}: {name} must be at least {least:g}, got {one}.")


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run reached.

    Attributes:
        experiment, preset, data: Which experiment, and on what.
        config: Its options.
        metrics: All that was measured, oldest first; the last one counts.
        minutes: How long it took, without breaks.
        folder: Where it is; None where nothing was kept.
    """

    experiment: str
    preset: str
    data: str
    config: dict[str, Any]
    metrics: tuple[dict[str, Any], ...]
    minutes: float
    folder: Path | None

    @property
    def final(self) -> dict[str, Any]:
        return self.metrics[-1]


class StoppedError(Exception):
    """A run was asked to stop, and did so after a step; its folder has all that it did."""

    def __init__(self, step: int, steps: int) -> None:
        super().__init__(f"stopped after step {step} of {steps}")
        self.step, self.steps = step, steps


# Told of every step: its number, the number of all, and what was measured last.
Watch = Callable[[int, int, Mapping[str, Any]], None]


def run(
    experiment: Experiment,
    config: Any,
    folder: Path | None = None,
    *,
    preset: str = "quick",
    resume: bool = False,
    watch: Watch | None = None,
    listeners: tuple[Callable[[Mapping[str, Any]], None], ...] = (),
    world: World | None = None,
) -> Result:
    """Run an experiment, or go on with a run that was interrupted.

    Args:
        experiment, config, preset: What to run.
        folder: Where config, metrics, checkpoints and pictures go; without it nothing is kept.
        resume: Go on with what the folder has. Without it, a folder that has a run is an error.
        watch: Told of every step.
        listeners: Told of every measurement.
        world: The processes that do it together: each step is a batch of each of them, so that there are fewer steps.
    """
    world = world or World()
    if folder is None:
        return _run(experiment, config, preset, None, watch, listeners, world)
    if not world.main:  # it reads what the first one wrote, and writes nothing
        world.wait()
        if (folder / "result.json").exists():
            return load(folder)
        return _run(experiment, config, preset, None, None, (), world, folder)
    with _locked(folder):
        kept = _Kept(folder, experiment, config, preset, resume, world.size)
        world.wait()
        return kept.result() if kept.finished else _run(experiment, config, preset, kept, watch, listeners, world)


def _run(
    experiment: Experiment,
    config: Any,
    preset: str,
    kept: "_Kept | None",
    watch: Watch | None,
    listeners: tuple[Callable[[Mapping[str, Any]], None], ...],
    world: World,
    followed: Path | None = None,
) -> Result:
    torch.manual_seed(_seed(config.seed, -1))
    task = experiment.start(config)
    done, before = 0, 0.0
    if kept is not None:
        kept.describe()
        done, before = kept.restore(task)
    elif followed is not None and (checkpoint := _checkpoint(followed)).exists():
        state = load_state(checkpoint)
        task.load(state["task"])
        done, before = state["done"], state["minutes"]
    world.share(task)
    metrics = [] if kept is None else kept.lines.read()
    last = metrics[-1] if metrics else {}
    started = saved = time.monotonic()
    steps, report = -(-task.steps // world.size), -(-task.report // world.size)
    with _interruptible() as interrupted:
        for number in range(done, steps):
            batch = number * world.size + world.rank
            torch.manual_seed(_seed(config.seed, batch))
            task.step(batch)
            done, now = number + 1, time.monotonic()
            minutes = before + (now - started) / 60
            stopping = world.any(interrupted())
            if done % report == 0 or done == steps:
                world.check(task)
                if world.main:
                    last = {"step": done, **task.measure(), "minutes": round(minutes, 4)}
                    metrics.append(last)
                    if kept is not None:
                        kept.save(task, done, minutes, last)
                    for listener in listeners:
                        listener(last)
                saved = now
            elif kept is not None and (stopping or now - saved > 60):
                kept.save(task, done, minutes, None)
                saved = now
            if watch is not None:
                watch(done, steps, last)
            if stopping and done < steps:
                raise StoppedError(done, steps)
    minutes = before + (time.monotonic() - started) / 60
    result = Result(
        experiment.name,
        preset,
        task.data,
        plain(config),
        tuple(metrics),
        minutes,
        None if kept is None else kept.folder,
    )
    if kept is not None:
        kept.finish(result, task.pictures())
    return result


def _seed(seed: int, step: int) -> int:
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks to stop after the step, the second one stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread, which alone is told
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two processes never write to one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{folder}: another process is running here.") from None
        yield


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoints" / "last.safetensors"


def plain(config: Any) -> dict[str, Any]:
    """The config as it comes back from JSON."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


class _Kept:
    """The folder of a run: config.json, metrics.jsonl, checkpoints/, and at the end result.json and pictures/."""

    def __init__(
        self, folder: Path, experiment: Experiment, config: Any, preset: str, resume: bool, processes: int
    ) -> None:
        self.folder = folder
        self.checkpoint = _checkpoint(folder)
        described: dict[str, Any] = {"experiment": experiment.name, "preset": preset, "config": plain(config)}
        if processes > 1:
            described["processes"] = processes
        path = folder / "config.json"
        if path.exists():
            if not resume:
                raise ValueError(f"{folder} has a run already: go on with --resume, or choose another folder.")
            self._same(path, described, plain(experiment.config()))
        self._described = described
        self.lines = Lines(folder / "metrics.jsonl")
        self.finished = (folder / "result.json").exists()

    def describe(self) -> None:
        """Write what this run is, as soon as its task has taken the options."""
        path = self.folder / "config.json"
        if not path.exists():
            versions = {"softly": softly.__version__, "torch": torch.__version__, "python": platform.python_version()}
            write(path, json.dumps({**self._described, "versions": versions}, indent=2) + "\n")

    def _same(self, path: Path, described: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
        """Refuse a run with other options; one that is newer than the run had its usual value, as its runs have."""
        try:
            found = json.loads(path.read_text())
            kept = {**usual, **found.pop("config")}
            found.pop("versions", None)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: this is no config of a run: {error}.") from None
        ours, theirs = {**described, **described["config"]}, {**found, **kept}
        del ours["config"]
        names = dict.fromkeys((*ours, *theirs))
        other = [f"{k} {theirs.get(k)!r}, not {ours.get(k)!r}" for k in names if theirs.get(k) != ours.get(k)]
        if other:
            raise ValueError(f"{self.folder} has a run with other options ({'; '.join(other)}).")

    def restore(self, task: Task) -> tuple[int, float]:
        """Load the last checkpoint; the steps done and the minutes they took."""
        if not self.checkpoint.exists():
            self.lines.cut(0)
            return 0, 0.0
        kept = load_state(self.checkpoint)
        try:
            done, minutes, line = int(kept["done"]), float(kept["minutes"]), kept["line"]
            task.load(kept["task"])
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise ValueError(f"{self.checkpoint}: this is no checkpoint of this run: {error!r}.") from None
        self.lines.cut(done)
        # Killed between checkpoint and line: the line was saved with the checkpoint.
        lines = self.lines.read()
        if line is not None and (not lines or lines[-1]["step"] < line["step"]):
            self.lines.append(line)
        return done, minutes

    def save(self, task: Task, done: int, minutes: float, line: Mapping[str, Any] | None) -> None:
        """A checkpoint first, and then the line of what was measured there: no line without its checkpoint."""
        save_state(self.checkpoint, {"task": task.state(), "done": done, "minutes": minutes, "line": line})
        if line is not None:
            self.lines.append(line)

    def finish(self, result: Result, pictures: Mapping[str, Any]) -> None:
        names = {}
        for number, (caption, figure) in enumerate(pictures.items()):
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=150)
            names[f"{number}.png"] = caption
            write(self.folder / "pictures" / f"{number}.png", content.getvalue())
        described = {"data": result.data, "minutes": result.minutes, "final": result.final, "pictures": names}
        write(self.folder / "result.json", json.dumps(described, indent=2) + "\n")

    def result(self) -> Result:
        return load(self.folder)


def load(folder: Path) -> Result:
    """A finished run; raises ValueError where there is none."""
    try:
        described = json.loads((folder / "config.json").read_text())
        ended = json.loads((folder / "result.json").read_text())
        metrics = tuple(read_lines(folder / "metrics.jsonl"))
        if not metrics:
            raise ValueError("metrics.jsonl is empty")
        for name, value in (*ended["final"].items(), *itertools.chain.from_iterable(line.items() for line in metrics)):
            if not isinstance(value, (int, float)):
                raise TypeError(f"{name} is {value!r}, which is no number")
        if not isinstance(ended["pictures"], dict) or not isinstance(described["config"], dict):
            raise TypeError("pictures and config must have names")
        return Result(
            described["experiment"],
            described["preset"],
            ended["data"],
            described["config"],
            metrics,
            float(ended["minutes"]),
            folder,
        )
    except FileNotFoundError as error:
        raise ValueError(
            f"{folder}: there is no finished run here, since {Path(error.filename).name} is missing."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}: this is no run: {error}.") from None
