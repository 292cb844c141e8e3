"""What is wrong with a user's input is said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(f"softly: {error}", err=True)
        raise typer.Exit(1) from None
