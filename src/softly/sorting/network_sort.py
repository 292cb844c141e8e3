"""Differentiable sorting networks: a network of comparators whose swaps are relaxed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from softly import distributions, native
from softly._compiling import constant_result
from softly.distributions import Distribution
from softly.distributions.symmetric import Art
from softly.minmax import symmetric
from softly.sorting import networks
from softly.sorting.networks import Network
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["SortingNetwork"]


class SortingNetwork(Sorter):
    """A sorting network with relaxed swaps (chapter 3).

    As ``steepness -> inf`` it sorts like ``torch.sort``; at every steepness ``P`` is doubly stochastic and
    ``P @ x`` equals the values. With "cauchy", "reciprocal" and "optimal" it is monotonic, and the error of a
    value is at most ``swap_error * depth / steepness`` of the distribution and the network.

    Args:
        network: A name of `softly.sorting.networks.names`, or a `Network`, which sorts vectors of its size.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0. "auto" bounds the error of the whole network by a tenth of the
            standard deviation of the values: it grows with the depth and with the inverse of the spread.

    Example:
        >>> s = softly.SortingNetwork("bitonic", distribution="cauchy", steepness=10.0)
        >>> s.sort(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1.0635, 2.0000, 2.9365])
        >>> s.permutation(torch.tensor([3.0, 1.0, 2.0])).sum(-2).round(decimals=4)
        tensor([1., 1., 1.])
    """

    def __init__(
        self,
        network: str | Network = "bitonic",
        *,
        distribution: str | Distribution = "cauchy",
        steepness: Steepness = 10.0,
    ) -> None:
        super().__init__(steepness=steepness)
        if not isinstance(network, Network) and network not in networks.names():
            choices = ", ".join(networks.names())
            raise ValueError(f"softly.SortingNetwork: unknown network {network!r}; choose from {choices}.")
        self.network = network
        self.distribution = symmetric(distribution, "softly.SortingNetwork")

    def _key(self, n: int) -> str:
        """Which network sorts ``n`` values, as a string that operators can carry."""
        if isinstance(self.network, str):
            return f"{self.network} {n}"
        if self.network.n != n:
            raise ValueError(f"softly.SortingNetwork: the network has {self.network.n} wires, got {n} values.")
        return register(self.network)

    def _permutation(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        return _run(_matrix, _matrix_reference, x, self._key(x.shape[-1]), self.distribution, steepness)

    def _values(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        values = _run(_values, _values_reference, x, self._key(x.shape[-1]), self.distribution, steepness)
        return values / steepness if isinstance(steepness, Tensor) else values

    def _ranks(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        n = x.shape[-1]
        weights = torch.arange(n, 0, -1, dtype=x.dtype, device=x.device).unsqueeze(0)
        return rows(x, self._key(n), self.distribution, steepness, n, weights).squeeze(-2)

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return rows(x, self._key(x.shape[-1]), self.distribution, steepness, k)

    def _auto(self, n: int, k: int) -> float:
        return careful_steepness(self._key(n), self.distribution)

    def extra_repr(self) -> str:
        return f"{self.network!r}, distribution={self.distribution}, {super().extra_repr()}"


@constant_result
def careful_steepness(key: str, distribution: Distribution) -> float:
    """Where the error of the network, at unit standard deviation, is at most a tenth."""
    error = distribution.swap_error * _network(key).depth
    return 10.0 * error if error else 1.0


_registered: dict[str, Network] = {}


def register(network: Network) -> str:
    """A key for a network that is not known by name."""
    key = f"custom {network.n} {id(network)}"
    _registered[key] = network
    return key


def _network(key: str) -> Network:
    if key in _registered:
        return _registered[key]
    name, n = key.split()
    return networks.get(name, int(n))


# The reference ---------------------------------------------------------------------------------------------------
#
# With partner[i] the other wire of i's comparator, or i itself, a layer is y + w (y[partner] - y): the matrix of a
# layer is I + w (swap - I) with the same w on both wires of a comparator. Rows of P follow the same rule.


@constant_result  # which has to be outside of the cache
def _layers(key: str) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """For each layer the partner of every wire, and 1 where a wire gets the smaller value, -1 where the larger."""
    return _cached_layers(key)


@constant_result
def _outputs(key: str) -> list[int]:
    return list(_network(key).outputs)


@lru_cache(maxsize=256)
def _cached_layers(key: str) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    network, layers = _network(key), []
    for layer in network.layers:
        partner, sign = list(range(network.n)), [0] * network.n
        for i, j in layer:
            partner[i], partner[j], sign[i], sign[j] = j, i, 1, -1
        layers.append((tuple(partner), tuple(sign)))
    return tuple(layers)


def _swaps(y: Tensor, key: str, distribution: Distribution) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """The values behind the last layer, and each layer's partners with their probabilities of swapping."""
    swaps = []
    for partner, sign in _layers(key):
        other = torch.tensor(partner, device=y.device)
        difference = y.index_select(-1, other) - y
        weight = distribution._cdf(-torch.tensor(sign, dtype=y.dtype, device=y.device) * difference)
        y = y + weight * difference
        swaps.append((other, weight))
    return y, swaps


def _values_reference(x: Tensor, key: str, distribution: Distribution, steepness: float) -> Tensor:
    return _swaps(x * steepness, key, distribution)[0] / steepness


def _constant(value: Tensor, y: Tensor) -> Tensor:
    """``value``, broadcast to ``y`` and with derivative 0 in it: a single wire has no comparator to bring one."""
    return torch.where(torch.ones((), dtype=torch.bool, device=y.device), value, y)


def _matrix_reference(x: Tensor, key: str, distribution: Distribution, steepness: float) -> Tensor:
    n = x.shape[-1]
    P = _constant(torch.eye(n, dtype=x.dtype, device=x.device), x.unsqueeze(-1))
    for other, weight in _swaps(x * steepness, key, distribution)[1]:
        P = P + weight.unsqueeze(-1) * (P.index_select(-2, other) - P)
    return P


def _rows_reference(
    x: Tensor, key: str, distribution: Distribution, steepness: float, k: int, weights: Tensor | None
) -> Tensor:
    """The rows of the k largest, or their sums by ``weights`` (m, k): from the last layer to the first, without P."""
    rows = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)[_outputs(key)[:k], :]
    rows = rows if weights is None else weights @ rows
    rows = _constant(rows, x.unsqueeze(-2))
    for other, weight in reversed(_swaps(x * steepness, key, distribution)[1]):
        rows = rows + weight.unsqueeze(-2) * (rows.index_select(-1, other) - rows)
    return rows


# The kernels -----------------------------------------------------------------------------------------------------

_FAMILIES = (  # in the order of native/core/distributions.h
    "heaviside",
    "uniform",
    "cubic_hermite",
    "wigner",
    "gaussian",
    "laplace",
    "logistic",
    "hyperbolic_secant",
    "cauchy",
    "reciprocal",
    "optimal",
)


@constant_result  # which has to be outside of the cache
def codes(distribution: Distribution) -> tuple[int, float] | None:
    """The kernels' number of a distribution and the strength of its replaced activations, -1 for none."""
    return _cached_codes(distribution)


@lru_cache(maxsize=256)
def _cached_codes(distribution: Distribution) -> tuple[int, float] | None:
    strength = -1.0
    if isinstance(distribution, Art):
        strength, distribution = distribution.strength, distribution.base
    for number, name in enumerate(_FAMILIES):
        if distribution == distributions.get(name):
            return number, strength
    return None


def decode(number: int, strength: float) -> Distribution:
    distribution = distributions.get(_FAMILIES[number])
    return distribution if strength < 0 else distributions.art(distribution, strength=strength)


def _run(
    operator: Any,
    reference: Any,
    x: Tensor,
    key: str,
    distribution: Distribution,
    steepness: float | Tensor,
    *constants: Any,
) -> Tensor:
    """``operator`` at a steepness that is a number, or at steepness 1 on ``x`` times one that is a tensor."""
    if isinstance(steepness, Tensor):
        x, steepness = x * steepness, 1.0
    numbers = codes(distribution)
    if numbers is None:
        return reference(x, key, distribution, steepness, *constants)
    return operator(x, key, *numbers, steepness, *constants)


def rows(
    x: Tensor,
    key: str,
    distribution: Distribution,
    steepness: float | Tensor,
    k: int,
    weights: Tensor | None = None,
) -> Tensor:
    """The rows of the network's k largest outputs, or their sums by ``weights`` (m, k)."""
    return _run(_rows, _rows_reference, x, key, distribution, steepness, k, weights)


class _Plan:
    """A network as the kernels want it, freed with this object."""

    def __init__(self, key: str, k: int | None) -> None:
        network = _network(key)
        chosen = range(network.n) if k is None else network.outputs[:k]
        outputs = torch.tensor(chosen, dtype=torch.int32)
        wires = torch.tensor(network.wires, dtype=torch.int32)
        offsets = torch.tensor(network.offsets, dtype=torch.int32)
        create, size = native.function("sorting_plan"), native.function("sorting_plan_size")
        self._destroy = native.function("sorting_plan_destroy")
        self.handle = create(
            network.n, wires.data_ptr(), offsets.data_ptr(), network.depth, outputs.data_ptr(), outputs.numel()
        )
        if not self.handle:
            raise MemoryError(f"softly.SortingNetwork: no memory for the plan of {network}.")
        self.size = size(self.handle)

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self._destroy(self.handle)


@lru_cache(maxsize=512)
def _plan(key: str, k: int | None = None) -> _Plan:
    return _Plan(key, k)


def _call(name: str, dtype: torch.dtype, *arguments: Any) -> None:
    if not native.kernel(name, dtype)(*arguments, torch.get_num_threads()):
        raise MemoryError(f"softly.SortingNetwork: no memory for the scratch space of {name}.")


def _empty(x: Tensor, *shape: int) -> Tensor:
    return x.new_empty(shape)


def _samples(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


# Of two tensors the larger one is allocated first: it then gets the place it had in the last step, and is in the cache.


def _values_shape(x: Tensor, network: str, distribution: int, art: float, steepness: float) -> tuple[Tensor, Tensor]:
    kept = _empty(x, _samples(x), _plan(network).size)
    return torch.empty_like(x), kept


def _values_forward(x: Tensor, network: str, distribution: int, art: float, steepness: float) -> tuple[Tensor, Tensor]:
    out, kept = _values_shape(x, network, distribution, art, steepness)
    pointers = (x.data_ptr(), out.data_ptr(), kept.data_ptr())
    _call("network_values", x.dtype, _plan(network).handle, distribution, art, steepness, *pointers, len(kept))
    return out, kept


def _values_backward(
    grad: Tensor, x: Tensor, kept: Tensor, network: str, distribution: int, art: float, steepness: float
) -> Tensor:
    out = torch.empty_like(x)
    pointers = (kept.data_ptr(), grad.data_ptr(), out.data_ptr())
    _call("network_values_backward", x.dtype, _plan(network).handle, *pointers, len(kept))
    return out


def _matrix_shape(x: Tensor, network: str, distribution: int, art: float, steepness: float) -> tuple[Tensor, Tensor]:
    return _empty(x, *x.shape, x.shape[-1]), _empty(x, _samples(x), 3, _plan(network).size)


def _matrix_forward(x: Tensor, network: str, distribution: int, art: float, steepness: float) -> tuple[Tensor, Tensor]:
    out, kept = _matrix_shape(x, network, distribution, art, steepness)
    pointers = (x.data_ptr(), out.data_ptr(), kept.data_ptr())
    _call("network_matrix", x.dtype, _plan(network).handle, distribution, art, steepness, *pointers, len(kept))
    return out, kept


def _matrix_backward(
    grad: Tensor, x: Tensor, kept: Tensor, network: str, distribution: int, art: float, steepness: float
) -> Tensor:
    out = torch.empty_like(x)
    pointers = (kept.data_ptr(), grad.data_ptr(), out.data_ptr())
    _call("network_matrix_backward", x.dtype, _plan(network).handle, steepness, *pointers, len(kept))
    return out


def _rows_shape(
    x: Tensor, network: str, distribution: int, art: float, steepness: float, k: int, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows = k if weights is None else len(weights)
    kept = _empty(x, _samples(x), 3, _plan(network, k).size)
    return _empty(x, *x.shape[:-1], rows, x.shape[-1]), kept


def _pointer(weights: Tensor | None) -> int:
    return 0 if weights is None else weights.data_ptr()


def _rows_forward(
    x: Tensor, network: str, distribution: int, art: float, steepness: float, k: int, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    out, kept = _rows_shape(x, network, distribution, art, steepness, k, weights)
    _call(
        "network_rows",
        x.dtype,
        _plan(network, k).handle,
        distribution,
        art,
        steepness,
        x.data_ptr(),
        _pointer(weights),
        out.shape[-2],
        out.data_ptr(),
        kept.data_ptr(),
        len(kept),
    )
    return out, kept


def _rows_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    network: str,
    distribution: int,
    art: float,
    steepness: float,
    k: int,
    weights: Tensor | None,
) -> Tensor:
    out = torch.empty_like(x)
    _call(
        "network_rows_backward",
        x.dtype,
        _plan(network, k).handle,
        steepness,
        _pointer(weights),
        grad.shape[-2],
        kept.data_ptr(),
        grad.data_ptr(),
        out.data_ptr(),
        len(kept),
    )
    return out


_values = native.Operator(
    "network_values",
    forward=_values_forward,
    shape=_values_shape,
    backward=_values_backward,
    reference=lambda x, key, number, art, *constants: _values_reference(x, key, decode(number, art), *constants),
)
_matrix = native.Operator(
    "network_matrix",
    forward=_matrix_forward,
    shape=_matrix_shape,
    backward=_matrix_backward,
    reference=lambda x, key, number, art, *constants: _matrix_reference(x, key, decode(number, art), *constants),
)
_rows = native.Operator(
    "network_rows",
    forward=_rows_forward,
    shape=_rows_shape,
    backward=_rows_backward,
    reference=lambda x, key, number, art, *constants: _rows_reference(x, key, decode(number, art), *constants),
)
