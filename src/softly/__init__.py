"""Write an algorithm; softly makes it differentiable."""

__version__ = "0.1.0"
