"""`softly logic`: from a table to a circuit, and from a circuit to source code."""

import csv
import io
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from softly_lab.explained import explained

if TYPE_CHECKING:
    from softly.logic import Circuit

logic = typer.Typer(help="Train, use, look at and export circuits of logic gates.", no_args_is_help=True)


class Task(StrEnum):
    auto = "auto"
    classes = "classes"
    numbers = "numbers"


class Form(StrEnum):
    c = "c"
    verilog = "verilog"
    blif = "blif"
    aiger = "aiger"
    aig = "aig"
    numpy = "numpy"


class Decimal(StrEnum):
    auto = "auto"
    point = "point"
    comma = "comma"


Missing = Annotated[
    list[str] | None, typer.Option(help="What else stands for a missing value, such as unknown; can be given again.")
]
Decimals = Annotated[Decimal, typer.Option(help="What parts the digits of numbers; by their form if not given.")]
Model = Annotated[Path, typer.Argument(help="A circuit that `softly logic train` or Circuit.save wrote.")]


def _shown(name: str) -> str:
    """A name from a file, without anything that a terminal would obey."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)


@logic.command()
def train(
    data: Annotated[Path, typer.Argument(help="A csv file with a header, or a npz file.")],
    target: Annotated[str, typer.Option(help="The column to learn.")],
    out: Annotated[Path, typer.Option(help="The file that the circuit is written to.")] = Path("model.safetensors"),
    layers: Annotated[int | None, typer.Option(help="Layers of gates.", show_default="4, 2 for numbers")] = None,
    width: Annotated[int | None, typer.Option(help="Gates of a layer.", show_default="4000")] = None,
    bits: Annotated[
        int | None, typer.Option(help="The most bits that a column of numbers becomes.", show_default="16")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="How often training goes through the rows.", show_default="by their number")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step.", show_default="100")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of Adam; it falls to 0.", show_default="0.05, more for few steps")
    ] = None,
    held_out: Annotated[float, typer.Option(help="Share of the rows that is kept from training.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Settles the split, the wires and the weights.")] = 0,
    task: Annotated[Task, typer.Option(help="Whether the target is a class or a number.")] = Task.auto,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; can be given again.")] = None,
    missing: Missing = None,
    texts: Annotated[
        list[str] | None, typer.Option(help="A column of texts, even where they look like numbers; can be given again.")
    ] = None,
    decimal: Decimals = Decimal.auto,
) -> None:
    """Learn a column of a table, and write the discretized network to a file.

    Texts become a bit each, numbers a ladder of thresholds, and missing values zeros.
    """
    from rich.console import Console

    from softly_lab import circuits
    from softly_lab.data import files
    from softly_lab.progress import Progress

    with explained():
        if not out.parent.is_dir():
            raise ValueError(f"there is no folder {out.parent} to write {out.name} to.")
        table = files.read(
            data,
            target,
            drop=drop or (),
            task=task.value,
            missing=missing or (),
            texts=texts or (),
            decimal=decimal.value,
        )
        config = circuits.Config(layers, width, bits, epochs, batch_size, learning_rate, held_out, seed)
        kinds = f"{len(table.classes)} classes" if table.classes else "numbers to predict"
        left_out = f"; {table.skipped} left out, without {target!r}" if table.skipped else ""
        typer.echo(f"{len(table.rows)} rows of {len(table.columns)} columns, {kinds}{left_out}")
        with (
            warnings.catch_warnings(record=True) as raised,
            Progress(Console(stderr=True), f"learning {_shown(target)}") as progress,
        ):
            warnings.simplefilter("always")
            result = circuits.train(table, config, missing=missing or (), progress=progress)
        for warning in raised:
            typer.echo(f"warning: {warning.message}", err=True)
        result.circuit.save(out)
    if table.classes:
        typer.echo(f"accuracy on {result.num_trained} rows of training: {100 * result.trained:.1f} %")
        typer.echo(
            f"accuracy on {result.num_held_out} held-out rows: {100 * result.held_out:.1f} % "
            f"(always the most frequent class: {100 * result.always:.1f} %)"
        )
    else:
        typer.echo(f"R² on {result.num_trained} rows of training: {result.trained:.3f}")
        typer.echo(f"R² on {result.num_held_out} held-out rows: {result.held_out:.3f}, mean error {result.error:.4g}")
    typer.echo(f"both of the discretized network, as it was after epoch {result.epoch}")
    typer.echo(f"{result.circuit!r}\n{out}")


@logic.command()
def predict(
    model: Model,
    data: Annotated[
        Path, typer.Argument(help="A csv file with a header, or a npz file, with the columns of the model.")
    ],
    out: Annotated[Path | None, typer.Option(help="The csv file to write; without it predictions are printed.")] = None,
    missing: Missing = None,
    decimal: Decimals = Decimal.auto,
) -> None:
    """Say what a circuit makes of new rows: the class or the number of every one.

    Columns are found by their names, and others are left out. Texts that were not there in training count as missing.
    """
    from softly_lab.data import files

    circuit = _load(model)
    with explained():
        table = files.read_for(circuit, data, missing=missing or (), decimal=decimal.value)
        answers = circuit.labels(table) if circuit.classes and circuit.task == "classes" else circuit.predict(table)
        if answers.ndim == 2:
            header = [f"prediction {number}" for number in range(answers.shape[1])]
        else:
            header, answers = ["prediction"], answers[:, None]
        written = io.StringIO(newline="")
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(answers.tolist())
        if out is None:
            typer.echo(written.getvalue(), nl=False)
        else:
            out.write_text(written.getvalue(), encoding="utf-8", newline="")


@logic.command()
def inspect(model: Model) -> None:
    """Show what a circuit consists of: its gates, columns and classes."""
    circuit = _load(model)
    typer.echo(f"{circuit.summary()}\n")
    if circuit.comparisons is not None:
        used = len(circuit.inputs.columns) if circuit.inputs is not None else 0
        typer.echo(
            f"{circuit.num_inputs} comparisons of {circuit.num_columns} columns with numbers give the bits; "
            f"{used} of them are needed."
        )
    formula = f"count / {circuit.tau:g}" + (f" + {circuit.beta:g}" if circuit.beta else "")
    formula = f"logit({formula})" if circuit.logit_size else formula
    if (circuit.scale, circuit.shift) != (1.0, 0.0):
        formula = f"{circuit.scale:g} * ({formula}) + {circuit.shift:g}"
    typer.echo(f"score = {formula}")
    for names, what in ((circuit.columns, "columns"), (circuit.classes, "classes")):
        if names:
            more = f" and {len(names) - 50} more" if len(names) > 50 else ""
            typer.echo(f"{what}: " + ", ".join(_shown(name[:80]) for name in names[:50]) + more)


@logic.command()
def export(
    model: Model,
    to: Annotated[Form, typer.Option(help="The language.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; without it the source is printed.")] = None,
    pipeline: Annotated[
        int, typer.Option(help="Verilog: registers after every so many levels of gates; 0 for none.")
    ] = 0,
    name: Annotated[str, typer.Option(help="C, Verilog, BLIF: the name that others begin with.")] = "circuit",
    floats: Annotated[bool, typer.Option("--floats", help="C: rows of floats, for machines without doubles.")] = False,
    fixed: Annotated[
        tuple[int, int] | None,
        typer.Option(help="Verilog: compare numbers of so many bits, so many of which are a fraction."),
    ] = None,
) -> None:
    """Write a circuit as source code that needs nothing of softly."""
    circuit = _load(model)
    with explained():
        if pipeline and to is not Form.verilog:
            raise ValueError(f"--pipeline is for Verilog, not for {to.value}.")
        if floats and to is not Form.c:
            raise ValueError(f"--floats is for C, not for {to.value}.")
        if fixed is not None and to is not Form.verilog:
            raise ValueError(f"--fixed is for Verilog, not for {to.value}.")
        if to is Form.aig:
            if out is None:
                raise ValueError("aig is binary: say --out FILE.")
            out.write_bytes(circuit.to_aiger(binary=True))
            return
        if name != "circuit" and to in (Form.aiger, Form.numpy):
            raise ValueError(f"--name is for C, Verilog and BLIF, not for {to.value}.")
        if to is Form.c:
            source = circuit.to_c(name=name, numbers="float" if floats else "double")
        elif to is Form.verilog:
            source = circuit.to_verilog(pipeline=pipeline, name=name, fixed=fixed)
        elif to is Form.blif:
            source = circuit.to_blif(name=name)
        else:
            source = circuit.to_aiger() if to is Form.aiger else circuit.to_numpy()
        if out is None:
            sys.stdout.write(source)
        else:
            out.write_text(source, encoding="ascii", newline="\n")


def _load(model: Path) -> "Circuit":
    from softly.logic import Circuit

    with explained():
        return Circuit.load(model)
