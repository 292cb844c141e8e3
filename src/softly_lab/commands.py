"""The commands of `softly`, one function each. What a command needs is imported when it runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

import softly
from softly_lab import run_commands
from softly_lab.data_commands import data
from softly_lab.explained import explained
from softly_lab.logic_commands import logic

commands = typer.Typer(
    help=softly.__doc__,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.command("list")(run_commands.list_experiments)
commands.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(run_commands.run_experiment)
commands.command("sweep")(run_commands.sweep)
commands.command("report")(run_commands.write_report)
commands.command("reproduce")(run_commands.reproduce)
commands.add_typer(data, name="data")
commands.add_typer(logic, name="logic")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softly {softly.__version__}")
        raise typer.Exit


@commands.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # The docstring would replace the help text above, so there is none.
    del version


@commands.command()
def tour(
    out: Annotated[Path, typer.Option(help="The folder that the page is written to.")] = Path("softly-tour"),
) -> None:
    """See every capability once, on one page with pictures. Needs no data and no network."""
    with explained():  # before the work, not after it
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out must be a folder for the page, and {out} is a file.")
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK):
            raise ValueError(f"--out must be a folder to write to, and {out} is not.")
    from softly_lab.tour import run

    if not run(out):
        raise typer.Exit(1)
