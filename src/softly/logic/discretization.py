"""From a trained model to its circuit: the model is traced, and every number on its way is followed by name.

A model runs once on names instead of numbers: of columns, of bits, and of groups that are counted. What only moves
numbers about (a reshape, a concatenation, an index) moves names in the same way; logic makes new names of them; all
else is refused. Two examples run side by side, whose names differ by a constant, and a model must not mix them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from softly.logic import wiring as wirings
from softly.logic.circuit import Circuit
from softly.logic.encodings import Encoding
from softly.logic.execution import Comparisons
from softly.logic.layers import GroupSum, LogicLayer, Logit
from softly.logic.netlist import Layer
from softly.logic.network import LogicNetwork

__all__ = ["discretize"]

_NAME = "softly.logic.discretize"
_GATES = 1 << 40  # names of bits that gates make begin here, those of inputs at 0
_SECOND = 1 << 50  # between the names of the first and of the second example
_LOGIC = (LogicNetwork, LogicLayer, GroupSum, Logit, Encoding)
_NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)  # in evaluation
_MOVING = (nn.Flatten, nn.Unflatten)

# What only moves numbers about, by name: as functions of torch and as methods of tensors.
_MOVES = {
    *("cat", "concat", "concatenate", "stack", "chunk", "split", "tensor_split", "unbind"),
    *("flatten", "unflatten", "reshape", "view", "ravel", "permute", "transpose", "swapaxes", "movedim", "unsqueeze"),
    *("squeeze", "narrow", "select", "index_select", "gather", "flip", "roll", "expand", "repeat_interleave", "unfold"),
}
_JOINS = {"cat", "concat", "concatenate", "stack"}
_SAME = {"contiguous", "detach", "clone", "cpu", "cuda"}
_CASTS = {"float", "double", "half", "bfloat16", "bool", "to", "type"}  # which leave bits what they are
_ASKS = {"size", "dim", "numel", "ndimension"}


@dataclass(frozen=True)
class _Names:
    """Names of what a tensor has, (2, ...): one example and another."""

    kind: str  # "columns", "bits" or "groups"
    names: Tensor


@dataclass(frozen=True)
class _Group:
    bits: np.ndarray
    tau: float
    beta: float
    logit_size: int = 0


@dataclass
class _Model:
    """What was found so far."""

    num_columns: int
    columns: list[np.ndarray] = field(default_factory=list)  # comparisons: their columns, thresholds, kinds
    thresholds: list[np.ndarray] = field(default_factory=list)
    kinds: list[np.ndarray] = field(default_factory=list)
    layers: list[tuple[Layer, np.ndarray]] = field(default_factory=list)  # with the names of the bits they see
    groups: list[_Group] = field(default_factory=list)
    num_gates: int = 0
    raw: bool = False  # whether columns are bits themselves

    def one(self, value: Any, module: nn.Module, wanted: str) -> np.ndarray:
        """The names of the first example, after a look at the second."""
        if not isinstance(value, _Names):
            raise TypeError(f"{_NAME}: {type(module).__name__} must see what comes of x, got {type(value).__name__}.")
        if value.kind == "columns" and wanted == "bits":
            self.raw, value = True, _Names("bits", value.names)
        if value.kind != wanted:
            raise _misplaced(module)
        return _first(value)

    def encoding(self, module: Encoding, value: Any) -> _Names:
        if not module.num_bits:
            raise ValueError(f"{_NAME}: fit the encoding on training data first.")
        names = self.one(value, module, "columns")
        _same_size(module, names, module.num_columns)
        columns, thresholds, kinds = (part.cpu().numpy() for part in module.comparisons())
        chosen = names[..., columns]
        first = sum(map(len, self.columns))
        self.columns.append(chosen.reshape(-1))
        self.thresholds.append(np.broadcast_to(thresholds, chosen.shape).reshape(-1))
        self.kinds.append(np.broadcast_to(kinds, chosen.shape).reshape(-1))
        return _both("bits", first + np.arange(chosen.size).reshape(chosen.shape))

    def layer(self, module: LogicLayer, value: Any) -> _Names:
        names = self.one(value, module, "bits")
        _same_size(module, names, module.in_dim)
        gates, wires = module.gate_ids().cpu().numpy(), module.wires.cpu()
        places = names.reshape(-1, module.in_dim)  # at each of them the same gates
        seeded = torch.equal(wires, wirings.wires(module.wiring, module.in_dim, module.out_dim, module.seed))
        wiring = (module.wiring, module.seed) if seeded and len(places) == 1 else None
        shifted = wires.numpy()[:, None] + module.in_dim * np.arange(len(places))[:, None]
        made = Layer(np.tile(gates, len(places)), shifted.reshape(2, -1), wiring=wiring)
        self.layers.append((made, places.reshape(-1)))
        result = _GATES + self.num_gates + np.arange(len(made.gates))
        self.num_gates += len(made.gates)
        return _both("bits", result.reshape(*names.shape[:-1], module.out_dim))

    def sums(self, module: GroupSum, value: Any) -> _Names:
        names = self.one(value, module, "bits")
        module.check(names.shape[-1])
        parts = names.reshape(-1, names.shape[-1] // module.k)
        first = len(self.groups)
        self.groups += [_Group(bits, module.tau, module.beta) for bits in parts]
        return _both("groups", first + np.arange(len(parts)).reshape(*names.shape[:-1], module.k))

    def logit(self, module: Logit, value: Any) -> _Names:
        names = self.one(value, module, "groups")
        first, before = len(self.groups), [self.groups[name] for name in names.reshape(-1).tolist()]
        if any(group.logit_size for group in before):
            raise _misplaced(module)
        self.groups += [_Group(group.bits, group.tau, group.beta, module.size) for group in before]
        return _both("groups", first + np.arange(names.size).reshape(names.shape))

    def network(self, module: LogicNetwork, value: Any) -> _Names:
        if module.encoding is not None:
            value = self.encoding(module.encoding, value)
        for layer in module.layers:
            value = self.layer(layer, value)  # type: ignore[arg-type]
        return self.sums(module.head, value)

    def circuit(self, value: Any, description: dict[str, Any]) -> Circuit:
        """Of what the model gives."""
        if not self.layers:
            raise TypeError(f"{_NAME}: the model has no LogicLayer.")
        if not isinstance(value, _Names) or value.kind == "columns":
            raise TypeError(f"{_NAME}: the model must give bits or sums of them, got what is neither.")
        names = _first(value)
        if names.ndim != 1:
            raise TypeError(f"{_NAME}: the model must give (..., k), got a result of {names.ndim + 1} dimensions.")
        if value.kind == "bits":
            groups = [_Group(names[i : i + 1], 1.0, 0.0) for i in range(len(names))]
        else:
            groups = [self.groups[name] for name in names.tolist()]
        if len({(len(group.bits), group.tau, group.beta, group.logit_size) for group in groups}) > 1:
            raise TypeError(f"{_NAME}: groups of one result must have one size, tau, beta and Logit; return several.")
        if self.raw and self.columns:
            raise TypeError(f"{_NAME}: x must be either compared by encodings or be bits, and not both.")
        num_inputs = sum(map(len, self.columns)) or self.num_columns
        comparisons = None
        if self.columns:
            parts = (np.concatenate(part) for part in (self.columns, self.thresholds, self.kinds))
            comparisons = Comparisons(self.num_columns, *parts)
        layers, begin, end = [], 0, num_inputs  # what the layer before has
        for layer, seen in self.layers:
            source = _numbered(seen, num_inputs)
            straight = np.array_equal(source, np.arange(begin, end))
            layers.append(Layer(layer.gates, layer.wires, wiring=layer.wiring, source=None if straight else source))
            begin, end = end, end + len(layer.gates)
        outputs = _numbered(np.concatenate([group.bits for group in groups]), num_inputs)
        return Circuit(
            num_inputs,
            layers,
            k=len(groups),
            tau=groups[0].tau,
            beta=groups[0].beta,
            logit_size=groups[0].logit_size,
            comparisons=comparisons,
            outputs=None if np.array_equal(outputs, np.arange(begin, end)) else outputs,
            **description,
        )


def _numbered(names: np.ndarray, num_inputs: int) -> np.ndarray:
    """Names of bits as numbers: inputs, then gates."""
    return np.where(names >= _GATES, names - _GATES + num_inputs, names)


def _both(kind: str, names: np.ndarray) -> _Names:
    one = torch.from_numpy(np.ascontiguousarray(names))
    return _Names(kind, torch.stack((one, one + _SECOND)))


def _first(value: _Names) -> np.ndarray:
    names = value.names
    apart = names.ndim > 0 and len(names) == 2 and torch.equal(names[1], names[0] + _SECOND)
    if not apart or (names[0] >= _SECOND).any():
        raise TypeError(f"{_NAME}: the first dimension is that of examples, which the model must not mix or move.")
    return names[0].numpy()


def _same_size(module: nn.Module, names: np.ndarray, size: int) -> None:
    if names.ndim == 0 or names.shape[-1] != size:
        raise ValueError(
            f"{_NAME}: {type(module).__name__} sees rows of {size}, but gets the shape {(2, *names.shape)} for two "
            "examples; shape= says what one example is."
        )


def _misplaced(module: nn.Module, name: str = "") -> TypeError:
    where = f" ({name!r})" if name else ""
    return TypeError(
        f"{_NAME}: a model is an encoding or none, logic layers, and then GroupSum and Logit or none of them, and what "
        f"moves bits about; can't take {type(module).__name__} where it stands{where}."
    )


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, _LOGIC) or super().is_leaf_module(m, module_qualified_name)


class _Follower(fx.Interpreter):
    """Runs a graph on names."""

    def __init__(self, graph: fx.GraphModule, model: _Model) -> None:
        super().__init__(graph)
        self.found = model
        self.extra_traceback = False

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.fetch_attr(target)
        if len(args) != 1 or kwargs:
            raise _misplaced(module, str(target))
        (value,) = args
        for kind, follow in self._followers():
            if isinstance(module, kind):
                return follow(module, value)
        if isinstance(module, _NOTHING):
            return value
        if isinstance(module, _MOVING) and isinstance(value, _Names):
            return _Names(value.kind, module(value.names))
        raise _misplaced(module, str(target))

    def _followers(self) -> list[tuple[type, Callable[[Any, Any], _Names]]]:
        found = self.found
        return [
            (LogicNetwork, found.network),
            (LogicLayer, found.layer),
            (GroupSum, found.sums),
            (Logit, found.logit),
            (Encoding, found.encoding),
        ]

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = _values((args, kwargs))
        if not values:
            return target(*args, **kwargs)  # of sizes
        name: str = getattr(target, "__name__", str(target))
        if target is getattr:
            return getattr(values[0].names, args[1]) if args[1] in ("shape", "ndim") else self._refuse(str(args[1]))
        if target is nn.functional.dropout and _Follower._training(*args, **kwargs) is False:
            return args[0]
        function: Callable[..., Any] = target
        if function is operator.getitem and not isinstance(args[0], _Names):
            return args[0][args[1]]  # one of several parts
        if function is operator.getitem or (name in _MOVES and getattr(torch, name, None) is function):
            return self._moved(name, function, values, args, kwargs)
        return self._refuse(name)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = _values((args, kwargs))
        if not values:
            return super().call_method(target, args, kwargs)
        if target in _ASKS:
            return getattr(values[0].names, target)(*args[1:], **kwargs)
        if target in _SAME:
            return args[0]
        if target in _CASTS:
            value = args[0]
            if value.kind == "groups" and not _exact(target, (*args[1:], *kwargs.values())):
                raise TypeError(f"{_NAME}: {target} changes sums of bits, which must stay float32 or float64.")
            if value.kind == "columns":  # numbers would be rounded, and bits are bits
                self.found.raw, value = True, _Names("bits", value.names)
            return value
        if target in _MOVES and isinstance(args[0], _Names):
            return self._moved(target, getattr(Tensor, target), values, args, kwargs)
        return self._refuse(target)

    def _moved(
        self, name: str, function: Callable[..., Any], values: list[_Names], args: tuple[Any, ...], kwargs: dict
    ) -> Any:
        if name not in _JOINS and not (len(values) == 1 and values[0] is args[0]):
            return self._refuse(f"{name} by what comes of x")
        kinds = {value.kind for value in values}
        if kinds == {"columns", "bits"}:  # what is together with bits is bits
            self.found.raw, kinds = True, {"bits"}
        if len(kinds) > 1:
            raise TypeError(f"{_NAME}: {name} must have bits or sums of bits, and not both.")
        (kind,) = kinds
        plain = _mapped((args, kwargs), lambda part: part.names if isinstance(part, _Names) else part)
        result = function(*plain[0], **plain[1])
        return _mapped(result, lambda part: _Names(kind, part) if isinstance(part, Tensor) else part)

    @staticmethod
    def _training(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> bool:
        """As `torch.nn.functional.dropout` is called."""
        return training

    def _refuse(self, what: str) -> Any:
        raise TypeError(f"{_NAME}: {what} is not logic: numbers on the way must be bits that gates make of bits.")


def _exact(cast: str, options: tuple[Any, ...]) -> bool:
    """Whether sums are the same after a cast."""
    dtypes = [option for option in options if isinstance(option, torch.dtype)]
    moved = cast == "to" and not any(isinstance(option, _Names) for option in options)
    return cast in ("float", "double") or ((moved or bool(dtypes)) and set(dtypes) <= {torch.float32, torch.float64})


def _values(parts: Any) -> list[_Names]:
    """All tensors of names among arguments."""
    found: list[_Names] = []
    _mapped(parts, lambda part: found.append(part) if isinstance(part, _Names) else None)
    return found


def _mapped(parts: Any, function: Callable[[Any], Any]) -> Any:
    """The same tuples, lists, dictionaries and slices of other things."""
    return fx.node.map_aggregate(parts, function)


def discretize(
    model: nn.Module,
    *,
    shape: Sequence[int] | None = None,
    columns: Sequence[str] = (),
    texts: Sequence[Sequence[str]] = (),
    missing: Sequence[str] = (),
    classes: Sequence[str] = (),
    task: str | None = None,
    scale: float = 1.0,
    shift: float = 0.0,
) -> Any:
    """The circuit of a trained model: every gate the one with the largest weight.

    The model is traced by ``torch.fx``. It may be of any form, as long as what happens to bits is logic: an encoding or
    none, `LogicLayer`, and then `GroupSum` and `Logit` or none of them; between them bits may be reshaped, indexed,
    joined and used again (skip connections), and dropout does nothing. Without a `GroupSum` every output is a group.

    Args:
        model: A `LogicNetwork`, a ``nn.Sequential`` or any other module with one input.
        shape: Of one example; None where it is a row of as many numbers as the first part of the model takes. The
            circuit takes rows, (..., numbers of an example).
        columns, texts, missing, classes, task, scale, shift: What the model itself does not know, as in `Circuit`.

    Returns:
        A `Circuit`; where the model gives a tuple, list or dictionary (several heads), one of circuits.

    Example:
        >>> softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
        Circuit(8 bits, 40 gates in 2 layers, ... after simplification, k=2)
    """
    root = model if not isinstance(model, _LOGIC) else nn.Sequential(model)
    modes = [(module, module.training) for module in root.modules()]
    root.eval()
    try:
        graph = _Tracer().trace(root)
    except Exception as error:  # whatever the model's own code does with what stands for a tensor
        raise TypeError(f"{_NAME}: torch.fx can't trace {type(model).__name__}: {error}") from error
    finally:
        for module, training in modes:
            module.training = training
    traced = fx.GraphModule(root, graph)
    given = [node for node in graph.nodes if node.op == "placeholder" and not node.args]
    if len(given) != 1:
        raise TypeError(f"{_NAME}: the model must have one input, got {len(given)}.")
    shape = (_num_columns(traced),) if shape is None else tuple(shape)
    found = _Model(int(np.prod(shape)))
    start = _both("columns", np.arange(found.num_columns).reshape(shape))
    result = _Follower(traced, found).run(start)
    description: dict[str, Any] = {"columns": columns, "texts": texts, "missing": missing, "classes": classes}
    description |= {"task": task, "scale": scale, "shift": shift}
    return _circuits(result, found, description)


def _num_columns(traced: fx.GraphModule) -> int:
    """How many numbers the first part of a model takes that says it."""
    for node in traced.graph.nodes:
        if node.op == "call_module":
            module = traced.get_submodule(node.target)
            if isinstance(module, LogicNetwork):
                module = module.encoding or module.layers[0]
            if isinstance(module, Encoding):
                if not module.num_bits:
                    raise ValueError(f"{_NAME}: fit the encoding on training data first.")
                return module.num_columns
            if isinstance(module, LogicLayer):
                return module.in_dim
            if not isinstance(module, (*_NOTHING, *_MOVING)):
                raise _misplaced(module, node.target)
    raise TypeError(f"{_NAME}: the model has no LogicLayer.")


def _circuits(result: Any, found: _Model, description: dict[str, Any]) -> Any:
    if isinstance(result, Mapping):
        return {key: _circuits(part, found, description) for key, part in result.items()}
    if isinstance(result, (tuple, list)):
        circuits = (_circuits(part, found, description) for part in result)
        return list(circuits) if isinstance(result, list) else tuple(circuits)
    return found.circuit(result, description)
