"""Entry point of the `softly` command."""

# What `softly[lab]` brings and the library alone doesn't, by the names under which it is imported.
LAB_PACKAGES = {"typer", "rich", "matplotlib", "sklearn", "scipy", "PIL"}


def app() -> None:
    """Run the `softly` command; say what to install where a package of `softly[lab]` is missing."""
    try:
        from softly_lab.commands import commands

        commands()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LAB_PACKAGES:
            raise
        raise SystemExit(
            f"softly: the command line needs the package {error.name}, which isn't installed.\n"
            'The library works without it; for the command line: pip install "softly[lab]"'
        ) from None
