"""Relaxed comparator networks as operators: values, matrices and single rows, with their kernels.

Rows whose entries are not all there and finite keep the network of as many wires as they have finite entries. Where
data can be read, and that is wherever a kernel runs, compiled or not, they run in groups of one size. Where it can't,
each row looks its comparators up in a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly import _inputs, native
from softly._cache import bounded
from softly._compiling import constant_result
from softly.distributions import Distribution, get
from softly.distributions.kernels import codes, decode
from softly.sorting import network_logarithms as logarithms
from softly.sorting import network_reference as reference
from softly.sorting import networks
from softly.sorting.lists import Lists
from softly.sorting.network_reference import Wiring


def values(x: Tensor, valid: Tensor | None, key: str, distribution: Distribution, steepness: float | Tensor) -> Tensor:
    """The sorted values."""
    scaled = isinstance(steepness, Tensor) or torch.compiler.is_compiling()
    result = _run(_values, _any_values, x, valid, key, distribution, steepness)
    return result / steepness if scaled else result


def matrix(x: Tensor, valid: Tensor | None, key: str, distribution: Distribution, steepness: float | Tensor) -> Tensor:
    """The permutation matrices."""
    return _run(_matrix, _any_matrix, x, valid, key, distribution, steepness)


def rows(
    x: Tensor,
    valid: Tensor | None,
    key: str,
    distribution: Distribution,
    steepness: float | Tensor,
    k: int,
    weights: Tensor | None = None,
) -> Tensor:
    """The rows of the network's k largest outputs, or their sums by ``weights`` (m, k)."""
    return _run(_rows, _any_rows, x, valid, key, distribution, steepness, k, weights)


_SMALL = 1e-8
"""Down to which entries of a matrix in float64 have at least half of their digits."""


def log_matrix(
    x: Tensor, valid: Tensor | None, key: str, distribution: Distribution, steepness: float | Tensor
) -> Tensor:
    """The logarithms of the permutation matrices, computed in float64."""
    if distribution.swap_is_monotonic and _regular(x, valid) and not native.transformed(x):
        # Heavy tails hardly ever need more than the digits of the matrix, which has kernels.
        P = matrix(x.double(), None, key, distribution, steepness)
        known = native.data(P)
        if known is not None and (known > _SMALL).all():
            return torch.log(P).to(x.dtype)

    def again(y: Tensor, size: str) -> Tensor:
        return _more_rows(log_matrix(y, None, size, distribution, 1.0), x.shape[-1])

    dense = lambda y, network: logarithms.matrix(y, network, distribution)  # noqa: E731
    unpacked = lambda lists, packed: lists.unpacked_matrix(packed, log=True)  # noqa: E731
    return _any(x.double() * steepness, valid, key, dense, again, unpacked).to(x.dtype)


def log_rows(
    x: Tensor, valid: Tensor | None, key: str, distribution: Distribution, steepness: float | Tensor, k: int
) -> Tensor:
    """The logarithms of the rows of the network's k largest outputs, computed in float64."""

    def again(y: Tensor, size: str) -> Tensor:
        return _more_rows(log_rows(y, None, size, distribution, 1.0, min(k, y.shape[-1])), k)

    dense = lambda y, network: logarithms.rows(y, network, distribution, k)  # noqa: E731
    unpacked = lambda lists, packed: lists.unpacked_top(packed, k, log=True)  # noqa: E731
    return _any(x.double() * steepness, valid, key, dense, again, unpacked).to(x.dtype)


def _run(
    operator: native.Operator,
    plain: Callable[..., Tensor],
    x: Tensor,
    valid: Tensor | None,
    key: str,
    distribution: Distribution,
    steepness: float | Tensor,
    *constants: Any,
) -> Tensor:
    """``operator`` at a steepness that is a number, or at 1 on ``x`` times one that is a tensor, or may change."""
    if isinstance(steepness, Tensor) or torch.compiler.is_compiling():
        x, steepness = x * steepness, 1.0
    numbers = codes(distribution)
    if numbers is None:
        return plain(x, valid, key, distribution, steepness, *constants)
    return operator(x, valid, key, *numbers, steepness, *constants)


# Any entries -----------------------------------------------------------------------------------------------------


def _regular(x: Tensor, valid: Tensor | None, *_: Any) -> bool:
    return valid is None and _inputs.known_finite(x)


def _any(
    x: Tensor,
    valid: Tensor | None,
    key: str,
    dense: Callable[[Tensor, Wiring], Tensor],
    again: Callable[[Tensor, str], Tensor],
    unpacked: Callable[[Lists, Tensor], Tensor],
) -> Tensor:
    """Sort rows of any entries.

    Args:
        x: (..., n) Values.
        valid: (..., n) Which of them are there.
        key: The network of n wires.
        dense: Runs a network on rows of finite entries.
        again: The operator that calls, on rows of finite entries, with the key of the network of their size.
        unpacked: Puts results for packed finite entries to where they belong.
    """
    if _regular(x, valid):
        return dense(x, reference.wiring(key, x))
    lists, n = Lists(x, valid), x.shape[-1]
    readable = native.data(x) is not None
    if readable and not native.transformed(x, *(() if valid is None else (valid,))):
        return unpacked(lists, _grouped(lists.packed(x), lists.count, key, again))
    if n <= reference.LARGEST_TABLE and networks.has_sizes(key):
        return unpacked(lists, dense(lists.packed(x), reference.wiring_by_count(key, x, lists.count)))
    if readable or valid is not None:
        networks.resized(key, n - 1)  # a network that has one size only says so itself
        raise ValueError(
            "softly.sort: under torch.func and in compiled code without kernels, lists with infinite or absent "
            f"entries may have up to {reference.LARGEST_TABLE} entries, got {n}: sort them outside, or without those."
        )
    # Nobody knows whether there are infinities. If so, the result is NaN, which can't be taken for a right one.
    result = dense(_inputs.finite(x), reference.wiring(key, x))
    spoiled = x.isinf().any(-1).reshape(*x.shape[:-1], *[1] * (result.ndim - x.ndim + 1))
    return torch.where(spoiled, torch.nan, result)


def _grouped(x: Tensor, count: Tensor, key: str, again: Callable[[Tensor, str], Tensor]) -> Tensor:
    """``again`` on the first ``count`` entries of rows, in groups of as many; zeros behind them."""
    n, flat, counts = x.shape[-1], x.reshape(-1, x.shape[-1]), count.reshape(-1)
    if not len(flat):
        return again(x, key)
    parts, members = [], []
    for size in counts.unique().tolist():
        group = (counts == size).nonzero().squeeze(-1)
        part = again(flat[group, : max(size, 1)], networks.resized(key, max(size, 1)))  # of none any one will do
        parts.append(torch.nn.functional.pad(part, (0, n - part.shape[-1])))
        members.append(group)
    result = torch.cat(parts)[torch.argsort(torch.cat(members))]
    return result.reshape(*x.shape[:-1], *result.shape[1:])


def _more_rows(matrices: Tensor, count: int) -> Tensor:
    return torch.nn.functional.pad(matrices, (0, 0, 0, count - matrices.shape[-2]))


def _any_values(x: Tensor, valid: Tensor | None, key: str, distribution: Distribution, steepness: float) -> Tensor:
    return _any(
        x,
        valid,
        key,
        lambda y, network: reference.values(y, network, distribution, steepness),
        lambda y, size: values(y, None, size, distribution, steepness),
        Lists.unpacked_values,
    )


def _any_matrix(x: Tensor, valid: Tensor | None, key: str, distribution: Distribution, steepness: float) -> Tensor:
    return _any(
        x,
        valid,
        key,
        lambda y, network: reference.matrix(y, network, distribution, steepness),
        lambda y, size: _more_rows(matrix(y, None, size, distribution, steepness), x.shape[-1]),
        Lists.unpacked_matrix,
    )


def _any_rows(
    x: Tensor,
    valid: Tensor | None,
    key: str,
    distribution: Distribution,
    steepness: float,
    k: int,
    weights: Tensor | None,
) -> Tensor:
    if weights is not None and not _regular(x, valid):
        return weights @ _any_rows(x, valid, key, distribution, steepness, k, None)

    def again(y: Tensor, size: str) -> Tensor:
        return _more_rows(rows(y, None, size, distribution, steepness, min(k, y.shape[-1])), k)

    return _any(
        x,
        valid,
        key,
        lambda y, network: reference.rows(y, network, distribution, steepness, k, weights),
        again,
        lambda lists, packed: lists.unpacked_top(packed, k),
    )


# The kernels -----------------------------------------------------------------------------------------------------


class _Plan:
    """A network as the kernels want it, freed with this object: who gives its handle away holds it meanwhile."""

    def __init__(self, key: str, k: int | None) -> None:
        network = networks.lookup(key)
        outputs = np.array(range(network.n) if k is None else network.outputs[:k], dtype=np.int32)
        create, size = native.function("sorting_plan"), native.function("sorting_plan_size")
        self._destroy = native.function("sorting_plan_destroy")
        pointers = (network.wires.ctypes.data, network.offsets.ctypes.data)
        self.handle = create(network.n, *pointers, network.depth, outputs.ctypes.data, len(outputs))
        if not self.handle:
            raise MemoryError(f"softly.SortingNetwork: no memory for the plan of {network}.")
        self.size = size(self.handle)
        self.nbytes = 160 * network.size  # about what it takes, with its schedules

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self._destroy(self.handle)


@bounded(128 << 20, size=lambda plan: plan.nbytes)
def _plan(key: str, k: int | None = None) -> _Plan:
    return _Plan(key, k)


@constant_result
def _kept(key: str, k: int | None = None) -> int:
    """How many weights of comparators the kernels keep for a row."""
    return _plan(key, k).size if native.available() else 0


def _call(name: str, dtype: torch.dtype, plan: _Plan, *arguments: Any) -> None:
    if not native.kernel(name, dtype)(plan.handle, *arguments, torch.get_num_threads()):
        raise MemoryError(f"softly.SortingNetwork: no memory for the scratch space of {name}.")


def _samples(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _check(
    x: Tensor, valid: Tensor | None, network: str, distribution: int, art: float, steepness: float, *rest: Any
) -> None:
    found = networks.lookup(network)
    if x.ndim == 0 or x.shape[-1] != found.n:
        raise ValueError(f"softly.SortingNetwork: the network has {found.n} wires, got shape {tuple(x.shape)}.")
    if valid is not None and (valid.shape != x.shape or valid.dtype != torch.bool):
        raise ValueError(f"softly.SortingNetwork: valid must be boolean of shape {tuple(x.shape)}.")
    decode(distribution, art)
    _inputs.steepness(steepness, "softly.SortingNetwork")


def _check_rows(
    x: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
    k: int,
    weights: Tensor | None,
) -> None:
    _check(x, valid, network, distribution, art, steepness)
    most = len(networks.lookup(network).outputs)
    if not 1 <= k <= most:
        raise ValueError(f"softly.SortingNetwork: k must be in [1, {most}], got {k}.")
    if weights is not None and (weights.ndim != 2 or weights.shape[-1] != k or weights.dtype != x.dtype):
        raise ValueError(
            f"softly.SortingNetwork: weights must be {x.dtype} of shape (m, {k}), "
            f"got {weights.dtype} of shape {tuple(weights.shape)}."
        )


# Of two tensors the larger one is allocated first: it then gets the place it had in the last step, and is in the cache.


def _values_shape(
    x: Tensor, valid: Tensor | None, network: str, distribution: int, art: float, steepness: float
) -> tuple[Tensor, Tensor]:
    kept = x.new_empty(_samples(x), _kept(network))
    return x.new_empty(x.shape), kept


def _values_forward(
    x: Tensor, valid: Tensor | None, network: str, distribution: int, art: float, steepness: float
) -> tuple[Tensor, Tensor]:
    plan = _plan(network)
    kept = x.new_empty(_samples(x), plan.size)
    out = torch.empty_like(x)
    pointers = (x.data_ptr(), out.data_ptr(), kept.data_ptr())
    _call("network_values", x.dtype, plan, distribution, art, steepness, *pointers, len(kept))
    return out, kept


def _values_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
) -> Tensor:
    out = torch.empty_like(x)
    pointers = (kept.data_ptr(), grad.data_ptr(), out.data_ptr())
    _call("network_values_backward", x.dtype, _plan(network), *pointers, len(kept))
    return out


def _matrix_shape(
    x: Tensor, valid: Tensor | None, network: str, distribution: int, art: float, steepness: float
) -> tuple[Tensor, Tensor]:
    return x.new_empty(*x.shape, x.shape[-1]), x.new_empty(_samples(x), 3, _kept(network))


def _matrix_forward(
    x: Tensor, valid: Tensor | None, network: str, distribution: int, art: float, steepness: float
) -> tuple[Tensor, Tensor]:
    plan = _plan(network)
    out, kept = x.new_empty(*x.shape, x.shape[-1]), x.new_empty(_samples(x), 3, plan.size)
    pointers = (x.data_ptr(), out.data_ptr(), kept.data_ptr())
    _call("network_matrix", x.dtype, plan, distribution, art, steepness, *pointers, len(kept))
    return out, kept


def _matrix_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
) -> Tensor:
    out = torch.empty_like(x)
    pointers = (kept.data_ptr(), grad.data_ptr(), out.data_ptr())
    _call("network_matrix_backward", x.dtype, _plan(network), steepness, *pointers, len(kept))
    return out


_SECOND = {codes(get(name)) for name in ("gaussian", "logistic", "hyperbolic_secant", "cauchy")}
_MOST_KEPT = 1 << 15  # entries of an example that its second derivatives need at once


def _curved(x: Tensor, valid: Tensor | None, network: str, distribution: int, art: float, steepness: float) -> bool:
    return (distribution, art) in _SECOND and _plan(network).size * x.shape[-1] <= _MOST_KEPT


def _matrix_second(
    u: Tensor,
    grad: Tensor,
    x: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
) -> tuple[Tensor, Tensor]:
    curved, pushed = torch.empty_like(x), torch.empty_like(grad)
    pointers = [tensor.data_ptr() for tensor in (x, grad, u, curved, pushed)]
    _call("network_second", x.dtype, _plan(network), distribution, steepness, *pointers, _samples(x))
    return curved, pushed


def _rows_shape(
    x: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
    k: int,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    count = k if weights is None else weights.shape[0]
    return x.new_empty(*x.shape[:-1], count, x.shape[-1]), x.new_empty(_samples(x), 3, _kept(network, k))


def _pointer(weights: Tensor | None) -> int:
    return 0 if weights is None else weights.data_ptr()


def _rows_forward(
    x: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
    k: int,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    plan = _plan(network, k)
    count = k if weights is None else len(weights)
    out, kept = x.new_empty(*x.shape[:-1], count, x.shape[-1]), x.new_empty(_samples(x), 3, plan.size)
    pointers = (x.data_ptr(), _pointer(weights), count, out.data_ptr(), kept.data_ptr())
    _call("network_rows", x.dtype, plan, distribution, art, steepness, *pointers, len(kept))
    return out, kept


def _rows_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    valid: Tensor | None,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
    k: int,
    weights: Tensor | None,
) -> Tensor:
    out = torch.empty_like(x)
    pointers = (_pointer(weights), grad.shape[-2], kept.data_ptr(), grad.data_ptr(), out.data_ptr())
    _call("network_rows_backward", x.dtype, _plan(network, k), steepness, *pointers, len(kept))
    return out


def _decoded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function`` of a distribution, for operators, which know its number."""

    def called(x: Tensor, valid: Tensor | None, key: str, number: int, art: float, *constants: Any) -> Tensor:
        return function(x, valid, key, decode(number, art), *constants)

    return called


_values = native.Operator(
    "network_values",
    forward=_values_forward,
    shape=_values_shape,
    backward=_values_backward,
    reference=_decoded(_any_values),
    check=_check,
    regular=_regular,
)
_matrix = native.Operator(
    "network_matrix",
    forward=_matrix_forward,
    shape=_matrix_shape,
    backward=_matrix_backward,
    reference=_decoded(_any_matrix),
    check=_check,
    regular=_regular,
    second=_matrix_second,
    curved=_curved,
)
_rows = native.Operator(
    "network_rows",
    forward=_rows_forward,
    shape=_rows_shape,
    backward=_rows_backward,
    reference=_decoded(_any_rows),
    check=_check_rows,
    regular=_regular,
)
