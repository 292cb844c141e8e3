"""The border to the compiled kernels, and the only importer of the compiled module.

A kernel enters as an `Operator`: its forward and backward become two torch operators, and a readable torch
reference stands in wherever a kernel can't go (other devices and dtypes, ``torch.func``, forward-mode
derivatives, derivatives of derivatives), so that nobody notices but by the clock.
"""

from softly.native.borders import data as data
from softly.native.borders import graphed as graphed
from softly.native.borders import mapped as mapped
from softly.native.borders import plain as plain
from softly.native.borders import transformed as transformed
from softly.native.library import available, isa, why
from softly.native.library import function as function
from softly.native.library import kernel as kernel
from softly.native.operator import Operator as Operator

__all__ = ["available", "isa", "why"]
