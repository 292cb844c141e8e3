"""What a relaxed program asks its values: comparisons, logic, extremes, and mixing by the answers.

Operands are numbers or tensors that broadcast; an answer about two numbers is a bool, any other a probability.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softly import _inputs
from softly.distributions import Distribution
from softly.tnorms import Probabilistic, TNorm

Number = bool | int | float

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Comparators:
    """How conditions are answered.

    Attributes:
        distribution: Perturbs the difference of what is compared.
        tnorm: The "and" and "or" of probabilities.
        hard: Answer exactly, by 0 and 1.
        guarded: Expect infinities, which take care in differences and in products with 0.
        static: Whether what is done is recorded or compiled, in plain operations.
    """

    distribution: Distribution
    tnorm: TNorm
    hard: bool = False
    guarded: bool = False
    static: bool = False

    def compare(self, symbol: str, a: Any, b: Any, steepness: float | Tensor) -> Any:
        """The probability of ``a symbol b``, or a bool where both are numbers."""
        if type(a) is not Tensor and not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return OPERATORS[symbol](a, b)
        if self.hard:
            answer = OPERATORS[symbol](a, b)
            return answer.to(_floating(a, b))
        if symbol[0] == "<":
            return self._below(a, b, steepness)
        if symbol[0] == ">":
            return self._below(b, a, steepness)
        equal = self._equal(a, b, steepness)
        return equal if symbol == "==" else 1.0 - equal

    def _difference(self, a: Any, b: Any) -> Any:
        if self.guarded:
            a, b = _finite(a, b), _finite(b, a)
        difference = b - a
        return difference if difference.dtype.is_floating_point else difference.to(torch.get_default_dtype())

    def _below(self, a: Any, b: Any, steepness: float | Tensor) -> Tensor:
        return self.distribution._cdf(self._difference(a, b) * steepness)

    def _equal(self, a: Any, b: Any, steepness: float | Tensor) -> Tensor:
        if not self.distribution.peaked:
            raise ValueError(
                "softly.relax: == and != need a distribution that has a density with its peak at 0, "
                f"got {self.distribution!r}."
            )
        difference = self._difference(a, b) * steepness
        return self.distribution._pdf(difference) / self.distribution._pdf(torch.zeros_like(difference))

    def both(self, a: Any, b: Any) -> Any:
        """``a and b`` of two answers."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return a * b if type(self.tnorm) is Probabilistic else self.tnorm.tnorm(a, b)
        known, other = (b, a) if isinstance(a, Tensor) else (a, b)
        return other if known else False

    def either(self, a: Any, b: Any) -> Any:
        """``a or b`` of two answers."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self.tnorm.tconorm(a, b)
        known, other = (b, a) if isinstance(a, Tensor) else (a, b)
        return True if known else other

    def all(self, answers: Sequence[Any]) -> Any:
        """``and`` over any number of answers."""
        return self._over(answers, True, self.tnorm.all, self.tnorm.tnorm)

    def any(self, answers: Sequence[Any]) -> Any:
        """``or`` over any number of answers."""
        return self._over(answers, False, self.tnorm.any, self.tnorm.tconorm)

    def every(self, answers: Tensor) -> Tensor:
        """``and`` over the second dimension."""
        return self.all(answers.unbind(1)) if self.static else self.tnorm.all(answers, dim=1)

    def some(self, answers: Tensor) -> Tensor:
        """``or`` over the second dimension."""
        return self.any(answers.unbind(1)) if self.static else self.tnorm.any(answers, dim=1)

    def _over(
        self,
        answers: Sequence[Any],
        neutral: bool,
        reduce: Callable[..., Tensor],
        pair: Callable[[Tensor, Tensor], Tensor],
    ) -> Any:
        tensors = [a for a in answers if isinstance(a, Tensor)]
        if any(bool(a) is not neutral for a in answers if not isinstance(a, Tensor)):
            return not neutral
        if not tensors:
            return neutral
        if self.static:
            return functools.reduce(pair, tensors)
        return reduce(torch.stack(torch.broadcast_tensors(*tensors)), dim=0)

    def largest(self, values: Tensor, steepness: float | Tensor) -> Tensor:
        """The weights of the largest along the last dimension, of the smallest for a negative steepness.

        Ties go to the first where answers are hard.
        """
        if self.hard:
            best = (values * steepness).argmax(-1)
            return torch.nn.functional.one_hot(best, values.shape[-1]).to(_floating(values, values))
        return torch.softmax((_inputs.finite(values) if self.guarded else values) * steepness, -1)

    def extreme(self, values: Sequence[Any], sign: int, steepness: float | Tensor) -> Any:
        """The largest of ``values`` for sign 1, the smallest for −1; the steepness has the sign."""
        if not any(isinstance(v, Tensor) for v in values):
            return max(values) if sign > 0 else min(values)
        if self.hard:
            stacked = torch.stack(torch.broadcast_tensors(*tensors(values)))
            return stacked.amax(0) if sign > 0 else stacked.amin(0)
        if len(values) == 2 and self.distribution.symmetric:
            a, b = values
            return self.mix(self.compare(">", a, b, steepness), a, b)
        stacked = torch.stack(torch.broadcast_tensors(*tensors(values)), -1)
        weights = self.largest(stacked, steepness)
        return self._weighted(weights, stacked).sum(-1) if self.guarded else torch.linalg.vecdot(weights, stacked)

    def absolute(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        """``x if x > 0 else -x``."""
        if self.hard:
            return x.abs()
        return self.mix(self.compare(">", x, 0.0, steepness), x, -x)

    def mix(self, p: Tensor, a: Any, b: Any) -> Tensor:
        """``p a + (1 - p) b`` for tensors or numbers, and exactly a or b where p is 1 or 0."""
        if p.dtype == torch.bool:
            return torch.where(p, a, b)
        if self.hard:
            return torch.where(p > 0.5, *_promoted(a, b, p))
        if self.guarded:
            a, b = _promoted(a, b, p)
            if self.static:
                return p * torch.where(p == 0, 0.0, a) + (1.0 - p) * torch.where(p == 1, 0.0, b)
            endless_a, endless_b = a.isinf(), b.isinf()
            mean = p * torch.where((p == 0) | endless_a, 0.0, a) + (1.0 - p) * torch.where((p == 1) | endless_b, 0.0, b)
            # What is infinite has no slope.
            mean = torch.where(endless_b & (p < 1), b.detach(), mean)
            return torch.where(endless_a & (p > 0), a.detach(), mean)
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return _between(float(b), float(a), p)
        a, b = _promoted(a, b, p)
        return torch.lerp(b, a, p.to(b.dtype))

    def _weighted(self, weights: Tensor, values: Tensor) -> Tensor:
        return weights * (torch.where(weights == 0, 0.0, values) if self.guarded or self.hard else values)

    def average(self, weights: Tensor, values: Tensor) -> Tensor:
        """The sum over the first dimension of ``weights * values``; weights lack the last dimensions of values."""
        weights = weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
        return self._weighted(weights, values).sum(0)


def _floating(*values: Any) -> torch.dtype:
    """What torch promotes values to in any order: tensors of one number count where no others are floating."""
    found = [v for v in values if isinstance(v, Tensor) and v.dtype.is_floating_point]
    if not found:
        return torch.get_default_dtype()
    return functools.reduce(torch.promote_types, [v.dtype for v in found if v.ndim] or [v.dtype for v in found])


def _finite(x: Any, other: Any) -> Any:
    if isinstance(x, Tensor):
        return _inputs.finite(x) if x.dtype.is_floating_point else x
    bound = _inputs.large(other) if other.dtype.is_floating_point else float("inf")
    return min(max(x, -bound), bound)


def tensors(values: Sequence[Any]) -> list[Tensor]:
    """Numbers as tensors of the dtype and device of the tensors among them."""
    dtypes = {v.dtype if isinstance(v, Tensor) else None for v in values}
    if len(dtypes) == 1 and next(iter(dtypes)).is_floating_point:  # type: ignore[union-attr]
        return list(values)
    found = [v for v in values if isinstance(v, Tensor)]
    dtype = _floating(*found)
    return [
        (v if v.dtype == dtype else v.to(dtype)) if isinstance(v, Tensor) else constant(v, dtype, found[0].device)
        for v in values
    ]


def constant(value: Number, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor without dimensions."""
    return torch.full((), float(value), dtype=dtype, device=device)


def _promoted(a: Any, b: Any, p: Tensor) -> tuple[Tensor, Tensor]:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return constant(a, p.dtype, p.device), constant(b, p.dtype, p.device)
    first, second = tensors([a, b])
    return first, second


def _between(start: float, end: float, p: Tensor) -> Tensor:
    """``start + p (end - start)``."""
    if start == 0.0:
        return p if end == 1.0 else p * end
    if end == 0.0:
        return (1.0 - p) if start == 1.0 else (1.0 - p) * start
    return start + p * (end - start)
