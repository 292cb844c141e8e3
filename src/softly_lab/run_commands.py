"""`softly list`, `run`, `sweep` and `report`: experiments from the command line."""

import dataclasses
import hashlib
import inspect
import math
import shlex
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from softly_lab.explained import explained

if typing.TYPE_CHECKING:
    from softly_lab.executors import Executor
    from softly_lab.runner import Experiment, Result

RUNS = Path("runs")
_OWN = {"help_option_names": ["-h", "--help"]}


def list_experiments() -> None:
    """Show all experiments, with what they do."""
    from rich.console import Console
    from rich.table import Table

    from softly_lab import experiments

    table = Table("experiment", "chapter", "what it does", box=None, header_style="dim", pad_edge=False)
    for name in experiments.NAMES:
        experiment = experiments.get(name)
        table.add_row(f"[bold]{name}", str(experiment.chapter), experiment.summary)
    console = Console()
    console.print(table)
    console.print("\nOptions of one: softly run EXPERIMENT --help", highlight=False)


def run_experiment(
    context: typer.Context,
    experiment: Annotated[str, typer.Argument(help="A name that `softly list` shows.", show_default=False)] = "",
) -> None:
    """Run an experiment, or go on with one that was interrupted: softly run EXPERIMENT --help shows its options."""
    from softly_lab import experiments

    if experiment in ("", "-h", "--help"):
        typer.echo(context.get_help())
        typer.echo(f"Experiments: {', '.join(experiments.NAMES)}")
        raise typer.Exit(0 if experiment else 2)
    with explained():
        found = experiments.get(experiment)
    app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False, context_settings=_OWN)
    app.command(help=f"{found.summary}\n\nChapter {found.chapter} of the thesis.")(_command(found))
    typer.main.get_command(app)(args=context.args, prog_name=f"softly run {experiment}")


def _command(experiment: "Experiment") -> Callable[..., None]:
    """A command with an option for every field of the config."""
    own = {
        "preset": Annotated[str, typer.Option(help=f"{', '.join(experiment.presets)}: how much is done.")],
        "out": Annotated[
            Path | None, typer.Option(help="The folder of the run.", show_default="runs/, and a name by the options")
        ],
        "resume": Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")],
        "threads": Annotated[int, typer.Option(help="Of torch and of softly's kernels.", min=1)],
        "nproc": Annotated[int, typer.Option(help="Processes that share the batches, by torchrun.", min=1)],
        "tensorboard": Annotated[bool, typer.Option("--tensorboard", help="Write events for TensorBoard, too.")],
    }
    defaults = {"preset": "quick", "out": None, "resume": False, "threads": 1, "nproc": 1, "tensorboard": False}
    hints = typing.get_type_hints(experiment.config)
    fields = {field.name: field for field in dataclasses.fields(experiment.config)}

    def command(**options: Any) -> None:
        chosen = {name: options.pop(name) for name in own}
        given = {name: _value(hints[name], text, name) for name, text in options.items() if text is not None}
        execute(experiment, given, **chosen)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, hint in own.items()
    ]
    for name, field in fields.items():
        presets = {preset: changes.get(name, field.default) for preset, changes in experiment.presets.items()}
        choices = field.metadata.get("choices")
        help = field.metadata["help"] + (f" One of {', '.join(choices)}." if choices else "")
        annotation = Annotated[
            str | None,
            typer.Option(help=help, metavar=_metavar(hints[name]), show_default=_defaults(presets)),
        ]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _metavar(hint: Any) -> str:
    kind = _kind(hint)[0]
    return {int: "INTEGER", float: "NUMBER", bool: "yes|no", str: "TEXT"}.get(kind, "VALUE")


def _kind(hint: Any) -> tuple[type, bool, bool]:
    """The type of a field, whether it is a list of them, and whether it may be none."""
    optional = isinstance(hint, types.UnionType) and type(None) in hint.__args__
    if optional:
        (hint,) = (part for part in hint.__args__ if part is not type(None))
    many = typing.get_origin(hint) is tuple
    return (typing.get_args(hint)[0] if many else hint), many, optional


def _value(hint: Any, text: str, name: str) -> Any:
    """What a text says for a field; parts of lists are parted by commas."""
    kind, many, optional = _kind(hint)
    if optional and text.lower() == "none":
        return None
    parts = text.split(",") if many else [text]
    made = []
    for part in parts:
        try:
            if kind is bool:
                made.append({"yes": True, "true": True, "no": False, "false": False}[part.strip().lower()])
            else:
                made.append(kind(part.strip()))
        except (ValueError, KeyError):
            wanted = {int: "a whole number", float: "a number", bool: "yes or no"}[kind]
            raise typer.BadParameter(f"{part!r} is not {wanted}", param_hint=f"--{name.replace('_', '-')}") from None
    return tuple(made) if many else made[0]


def _defaults(presets: Mapping[str, Any]) -> str:
    shown = {preset: _text(value) for preset, value in presets.items()}
    if len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return ", ".join(f"{preset} {text}" for preset, text in shown.items())


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return (
        {True: "yes", False: "no"}[value]
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def place(experiment: "Experiment", config: Any, preset: str, root: Path = RUNS) -> Path:
    """The folder of a run by its options, of which the name shows those that are not the preset's."""
    usual, chosen = dataclasses.asdict(experiment.configure(preset)), dataclasses.asdict(config)
    parts = [f"{name}={_text(value)}" for name, value in chosen.items() if value != usual[name] or name == "seed"]
    name = "_".join(parts).replace("/", "-")
    if len(name) > 100:
        name = f"{name[:80]}_{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"
    return root / experiment.name / preset / name


def execute(
    experiment: "Experiment",
    options: Mapping[str, Any],
    *,
    preset: str,
    out: Path | None,
    resume: bool,
    threads: int,
    nproc: int,
    tensorboard: bool,
) -> None:
    """Run with progress in the terminal; what was reached at the end."""
    import torch
    from rich.console import Console

    from softly_lab import parallel
    from softly_lab.progress import Progress
    from softly_lab.runner import StoppedError, run

    if nproc > 1 and not parallel.started():
        raise typer.Exit(parallel.launch(nproc, sys.argv[1:]))
    with explained(), parallel.joined() as world:
        # The first process speaks for all of them.
        console = Console(stderr=True, quiet=not world.main)
        config = experiment.configure(preset, **options)
        folder = out or place(experiment, config, preset)
        torch.set_num_threads(threads)
        finished = (folder / "result.json").exists()
        listeners = (_events(folder),) if tensorboard else ()
        try:
            with Progress(console, experiment.name) as progress:
                result = run(
                    experiment,
                    config,
                    folder,
                    preset=preset,
                    resume=resume,
                    watch=progress,
                    listeners=listeners,
                    world=world,
                )
        except (StoppedError, KeyboardInterrupt) as stopped:
            again = shlex.join(["softly", "run", *sys.argv[2:], *([] if resume else ["--resume"])])
            where = f" after step {stopped.step} of {stopped.steps}" if isinstance(stopped, StoppedError) else ""
            console.print(f"Stopped{where}. To go on:\n  {again}", highlight=False, soft_wrap=True)
            world.wait()
            raise typer.Exit(130) from None
        if finished:
            console.print("This run was finished before.", highlight=False)
        if world.main:
            show(result)


def _events(folder: Path) -> Callable[[Mapping[str, Any]], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
    writer = SummaryWriter(folder / "events")

    def write(line: Mapping[str, Any]) -> None:
        for name, value in line.items():
            if name != "step":
                writer.add_scalar(name, value, line["step"])
        writer.flush()

    return write


def show(result: "Result") -> None:
    """What a run reached, for people in the terminal and as it is for programs."""
    reached = f"{result.experiment} on {result.data}: {numbers(result.final)} ({result.minutes:.1f} min)"
    typer.echo(f"{reached}\n{result.folder}")


def numbers(line: Mapping[str, Any]) -> str:
    """What a line of metrics has, without when it was measured."""
    return ", ".join(f"{name} {value:.4g}" for name, value in line.items() if name not in ("step", "minutes"))


def write_report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that have some below them.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Put runs beside the thesis' tables, on one page with curves and pictures."""
    from softly_lab.files import write
    from softly_lab.report import collect, render

    with explained():
        found = collect(runs)
        write(out, render(found))
    typer.echo(f"{len(found)} runs in {out}")


def sweep(
    experiment: Annotated[str, typer.Argument(help="A name that `softly list` shows.")],
    grid: Annotated[
        list[str] | None, typer.Option(help="An option and its values, sorter=bitonic,odd_even; can be given again.")
    ] = None,
    preset: Annotated[str, typer.Option(help="How much each run does.")] = "quick",
    seeds: Annotated[int, typer.Option(help="How many seeds each.", min=1)] = 1,
    executor: Annotated[str, typer.Option(help="local, processes on this machine, or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="Runs at a time.", min=1)] = 1,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; without it Ray starts here.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of all runs.")] = RUNS,
) -> None:
    """Run an experiment with all combinations of options; finished ones are skipped."""
    from softly_lab import executors, experiments

    with explained():
        found = experiments.get(experiment)
        hints = typing.get_type_hints(found.config)
        values = {
            name: [_value(hints.get(name, str), part, name) for part in parts] for name, parts in _grid(grid or [])
        }
        values.setdefault("seed", list(range(seeds)))
        failed = _sweep(found, preset, values, executors.get(executor, workers, address), out)
    if failed:
        typer.echo(f"softly: {failed} runs failed.", err=True)
        raise typer.Exit(1)


def reproduce(
    preset: Annotated[str, typer.Option(help="quick, standard or full: how much is done.")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="An experiment; can be given again.")] = None,
    executor: Annotated[str, typer.Option(help="local, processes on this machine, or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="Runs at a time.", min=1)] = 1,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; without it Ray starts here.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs and report.")] = RUNS,
) -> None:
    """Run all experiments with the methods that they compare, and write a report; finished runs are skipped."""
    from softly_lab import executors, experiments
    from softly_lab.files import write
    from softly_lab.report import collect, render

    with explained():
        chosen = [experiments.get(name) for name in only or experiments.NAMES]
        engine = executors.get(executor, workers, address)
        failed = 0
        for found in chosen:
            typer.echo(f"== {found.name}", err=True)
            failed += _sweep(found, preset, found.compared.get(preset, {}), engine, out)
        path = write(out / f"{preset}.html", render(collect([out / found.name / preset for found in chosen])))
    typer.echo(f"The report is in {path}")
    if failed:
        typer.echo(f"softly: {failed} runs failed.", err=True)
        raise typer.Exit(1)


def _sweep(
    experiment: "Experiment", preset: str, values: Mapping[str, Sequence[Any]], engine: "Executor", out: Path
) -> int:
    """Do all combinations and say what became of each; the number of failures."""
    from rich.console import Console

    from softly_lab import executors
    from softly_lab.progress import Progress

    console, failed = Console(stderr=True), 0
    jobs = executors.jobs(experiment, preset, values, lambda config: place(experiment, config, preset, out))
    outcomes = executors.sweep(jobs, engine, out / experiment.name / f"{preset}.jsonl")
    total = math.prod(map(len, values.values()))
    with Progress(console, experiment.name, "run") as progress:
        progress(0, total, {})
        for done, outcome in enumerate(outcomes, 1):
            name = outcome.job.folder.name
            if outcome.final is None:
                failed += 1
                console.print(f"[red]✗[/] {name}\n{outcome.error}", highlight=False, soft_wrap=True)
            else:
                console.print(f"[green]✓[/] {name}: {numbers(outcome.final)}", highlight=False, soft_wrap=True)
            progress(done, total, {})
    return failed


def _grid(texts: list[str]) -> list[tuple[str, list[str]]]:
    made = []
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"--grid {text}: an option and its values are wanted, as in --grid n=3,5.")
        made.append((name.strip().replace("-", "_"), values.split(",")))
        if len({given for given, _ in made}) < len(made) or len({*made[-1][1]}) < len(made[-1][1]):
            raise ValueError(f"--grid {text}: an option, and each of its values, is to be given once.")
    return made
