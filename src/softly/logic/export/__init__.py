"""Circuits as source text: C, Verilog, BLIF, AIGER and NumPy, with nothing of softly left in it.

Names of columns and classes come from files that anybody may have written. They reach a comment or a string in the
source with every character that could end it escaped, and never become an identifier.
"""

from softly.logic.export.aiger import to_aiger
from softly.logic.export.blif import to_blif
from softly.logic.export.c import to_c
from softly.logic.export.python import to_numpy
from softly.logic.export.verilog import to_verilog

__all__ = ["to_aiger", "to_blif", "to_c", "to_numpy", "to_verilog"]
