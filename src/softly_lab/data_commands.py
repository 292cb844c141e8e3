"""`softly data`: what data there is, and how to get it."""

from typing import Annotated

import typer

from softly_lab.explained import explained

data = typer.Typer(help="See what data experiments use, and fetch it.", no_args_is_help=True)


@data.command("list")
def list_sets() -> None:
    """Show all data sets: what they are, their licence, and whether they are there."""
    from rich.console import Console
    from rich.table import Table

    from softly_lab.data import available, begun, catalog

    table = Table("data", "what", "size", "licence", "", box=None, header_style="dim", pad_edge=False)
    for name, entry in catalog.sets().items():
        missing = "in part" if begun(name) else "" if entry.fetchable else "by hand"
        state = "[green]there" if available(name) else f"[dim]{missing}"
        size = f"{entry.bytes / 1e6:.0f} MB" if entry.bytes >= 1e6 else f"{entry.bytes / 1e3:.0f} kB"
        table.add_row(f"[bold]{name}", entry.title, size, entry.licence, state)
    console = Console()
    console.print(table)
    console.print(f"\nFetched data is kept in {catalog.kept()}", highlight=False, soft_wrap=True)


@data.command()
def fetch(name: Annotated[str, typer.Argument(help="A name that `softly data list` shows.")]) -> None:
    """Download a data set from its public mirrors, and check it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from softly_lab.data import catalog

    with explained():
        entry = catalog.get(name)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        with Progress(*columns, console=Console(stderr=True)) as progress:
            tasks = {file.path: progress.add_task(file.path, total=file.bytes, visible=False) for file in entry.files}
            watch = lambda path, done, total: progress.update(  # noqa: E731
                tasks[path], completed=done, total=total or None, visible=True
            )
            path = catalog.fetch(entry, watch)
    typer.echo(f"{name} ({entry.licence}; {entry.source})\n{path}")
