"""Whole numbers of relaxed ones, and operations that have no value for some operands."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.numbers import Number
from softly.algorithms.engine.protocol import Run
from softly.elementary import stairs


class Rounding:
    """Relaxed ``round``, ``floor``, ``ceil`` and ``trunc``, continuous and exact at whole numbers.

    ``round`` is `softly.round`. With f the fraction of x and F the CDF of the distribution, ``floor`` rises just below
    the next whole number, by ``(F(s) - F(s (1 - f))) / (F(s) - F(0))``.
    """

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    def _cdf(self, x: Tensor) -> Tensor:
        return self.engine.settings.distribution._cdf(x)

    def whole(self, x: Any) -> bool:
        return not isinstance(x, Tensor) or not x.dtype.is_floating_point

    def floor_tensor(self, x: Tensor) -> Tensor:
        if self.whole(x):
            return x
        low = x.detach().floor()
        if self.engine.settings.hard:
            return low
        s = self.engine.steepness
        top = self._cdf(s)
        bottom = self._cdf(torch.zeros_like(s))
        fraction = x - low
        step = (top - self._cdf(s * (1.0 - fraction))) / (top - bottom)
        return torch.where(low.isfinite(), low + step, x)

    def round_tensor(self, x: Tensor) -> Tensor:
        if self.whole(x):
            return x
        if self.engine.settings.hard:
            return x.detach().round()
        return stairs(x, self.engine.settings.distribution, self.engine.steepness)

    def trunc_tensor(self, x: Tensor) -> Tensor:
        return torch.where(x.detach() >= 0, self.floor_tensor(x), -self.floor_tensor(-x))

    def floor(self, x: Any) -> Any:
        return self._whole(self.engine.elementwise(self.floor_tensor, x))

    def ceil(self, x: Any) -> Any:
        return self._whole(self.engine.elementwise(lambda t: -self.floor_tensor(-t), x))

    def trunc(self, x: Any) -> Any:
        return self._whole(self.engine.elementwise(self.trunc_tensor, x))

    @staticmethod
    def _whole(x: Any) -> Any:
        if isinstance(x, Number):
            x.whole = True
        return x

    def round(self, x: Any, digits: int | None = None) -> Any:
        if not digits:
            return self._whole(self.engine.elementwise(self.round_tensor, x))
        unit = 10.0**digits
        return self.engine.elementwise(lambda t: self.round_tensor(t * unit) / unit, x)


class Arithmetic:
    """Operations on tensors that are careful on paths that nobody is on."""

    def __init__(self, engine: Run, rounding: Rounding) -> None:
        self.engine, self.rounding = engine, rounding
        self.operations: dict[str, Callable[[Any, Any], Any]] = {
            "add": operator.add,
            "sub": operator.sub,
            "mul": operator.mul,
            "truediv": self.divide,
            "floordiv": self.floor_divide,
            "mod": self.modulo,
            "pow": self.power,
        }

    def divide(self, a: Any, b: Any) -> Any:
        b = self.engine.control.safe(b, lambda t: t == 0)
        return a / b

    def floor_divide(self, a: Any, b: Any) -> Any:
        if self.rounding.whole(a) and self.rounding.whole(b) and not (type(a) is float or type(b) is float):
            b = self.engine.control.safe(b, lambda t: t == 0)
            return torch.div(a, b, rounding_mode="floor")
        return self.rounding.floor_tensor(self.divide(a, b))

    def modulo(self, a: Any, b: Any) -> Any:
        if self.rounding.whole(a) and self.rounding.whole(b) and not (type(a) is float or type(b) is float):
            return torch.remainder(a, self.engine.control.safe(b, lambda t: t == 0))
        if self.engine.settings.hard:
            return torch.remainder(a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else a % b
        b = self.engine.control.safe(b, lambda t: t == 0)
        return a - b * self.rounding.floor_tensor(a / b)

    def power(self, a: Any, b: Any) -> Any:
        if not isinstance(b, Tensor):
            if b >= 1 and float(b).is_integer():
                return a**b
            return self.engine.control.safe(a, lambda t: t <= 0) ** b
        if b.ndim == 0 and not b.requires_grad and not self.engine.static:
            return self.power(a, int(b) if float(b).is_integer() else float(b))
        if isinstance(a, Tensor):
            a = self.engine.control.safe(a, lambda t: t <= 0)
        return a**b
