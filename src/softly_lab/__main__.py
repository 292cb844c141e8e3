"""`python -m softly_lab` is the command `softly`."""

from softly_lab.cli import app

app()
