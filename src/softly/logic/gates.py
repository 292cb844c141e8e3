"""The sixteen gates of two bits, and their relaxations to [0, 1].

The number of a gate is its truth table, read as bits: ``8 f(0,0) + 4 f(0,1) + 2 f(1,0) + f(1,1)``. With the
probabilistic T-norm a gate is the polynomial ``c0 + c1 a + c2 b + c3 ab`` that its truth table determines, so that any
mixture of gates is one, too: four numbers instead of sixteen gates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from softly import _inputs, tnorms
from softly.tnorms import TNorm

__all__ = ["COEFFICIENTS", "NAMES", "TRUTH", "numbers", "relaxed"]

NAMES = (
    *("false", "and", "not_implies", "a", "not_implied_by", "b", "xor", "or"),
    *("nor", "xnor", "not_b", "implied_by", "not_a", "implies", "nand", "true"),
)

# (16, 4): the values at (a, b) = (0, 0), (0, 1), (1, 0), (1, 1).
TRUTH: Tensor = torch.tensor([[gate >> 3 - column & 1 for column in range(4)] for gate in range(16)]).bool()

# (16, 4): c0, c1, c2, c3 of c0 + c1 a + c2 b + c3 ab.
COEFFICIENTS: Tensor = TRUTH.double() @ torch.tensor(
    [[1.0, -1.0, -1.0, 1.0], [0.0, 0.0, 1.0, -1.0], [0.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 1.0]], dtype=torch.float64
)


def numbers(gates: Sequence[str | int] | None, *, function: str = "softly.logic.gates.numbers") -> tuple[int, ...]:
    """The numbers of a set of gates, in ascending order; None stands for all sixteen.

    Example:
        >>> softly.logic.gates.numbers(["nand", "a", 1])
        (1, 3, 14)
    """
    if gates is None:
        return tuple(range(16))
    found = set()
    for gate in gates:
        if isinstance(gate, str) and gate in NAMES:
            found.add(NAMES.index(gate))
        elif isinstance(gate, int) and not isinstance(gate, bool) and 0 <= gate < 16:
            found.add(gate)
        else:
            raise ValueError(f"{function}: gates must be numbers in [0, 15] or of {', '.join(NAMES)}; got {gate!r}.")
    if not found:
        raise ValueError(f"{function}: gates must name at least one gate.")
    return tuple(sorted(found))


def relaxed(a: Tensor, b: Tensor, *, tnorm: str | TNorm = "probabilistic") -> Tensor:
    """All sixteen gates of two tensors in [0, 1].

    On {0, 1} these are the truth tables, with every T-norm. The T-norm is the "and", its T-conorm the "or", negation
    is ``1 - x``, and "xor" is "or" minus "and"; gate ``15 - i`` is the negation of gate ``i``.

    Args:
        a, b: (...) Broadcastable tensors in [0, 1].
        tnorm: Name or `TNorm`; "probabilistic" takes the two bits as independent events.

    Returns:
        (..., 16), in the order of `NAMES`.

    Example:
        >>> softly.logic.gates.relaxed(torch.tensor(0.5), torch.tensor(0.4))[:8]
        tensor([0.0000, 0.2000, 0.3000, 0.5000, 0.2000, 0.4000, 0.5000, 0.7000])
    """
    name = "softly.logic.gates.relaxed"
    a, b = torch.broadcast_tensors(_inputs.floating(a, name, "a"), _inputs.floating(b, name, "b"))
    t = tnorms.get(tnorm)
    both, either = t.tnorm(a, b), t.tconorm(a, b)
    half = [torch.zeros_like(a), both, t.tnorm(a, 1 - b), a, t.tnorm(1 - a, b), b, either - both, either]
    return torch.stack([*half, *(1 - gate for gate in reversed(half))], -1)
