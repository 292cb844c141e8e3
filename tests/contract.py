"""What every operator of softly promises, as a table of operators and the checks that each has to pass.

A new operator adds a `Row`; ``test_contract.py`` runs every check on every row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import softly
from softly import native

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@dataclass(frozen=True)
class Row:
    """One operator, at one choice of hyperparameters.

    Attributes:
        function: ``(*tensors, **hyper) -> Tensor``.
        hyper: The hyperparameters of the checks.
        other: For each hyperparameter another value, which has to change the result.
        limit: The operator that is relaxed, ``(*tensors) -> Tensor``.
        limit_hyper: Hyperparameters at which ``function`` has all but reached its limit.
        shapes: The shapes of the tensors of one example.
        unit: Whether entries are probabilities; the limit is then taken at 0 and 1.
        twice: Whether second derivatives exist where the checks look.
        takes_dim: Whether there is a ``dim``, that of the last dimension by default.
        shortest: The least length of the last dimension.
        tolerance: Of the limit.
        estimated: Whether the derivative is an estimate, or a step, and not that of the value.
        black_box: The operator as users have it, where it asks a black box: outside of compiled code and of vmap, and
            about numbers only.
        native_op: Name of the operator in ``torch.ops.softly`` behind it, and its constants.
        native_input: What that operator is given for the first tensor.
    """

    name: str
    function: Callable[..., Tensor]
    limit: Callable[..., Tensor]
    limit_hyper: dict[str, Any] = field(default_factory=dict)
    hyper: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
    shapes: Sequence[tuple[int, ...]] = ((5,),)
    unit: bool = False
    twice: bool = True
    takes_dim: bool = False
    shortest: int = 1
    tolerance: float = 1e-5
    estimated: bool = False
    black_box: Callable[..., Tensor] | None = None
    native_op: tuple[str, tuple[Any, ...]] | None = None
    native_input: Callable[[Tensor], Tensor] = torch.clone

    def __call__(self, *tensors: Tensor, **hyper: Any) -> Tensor:
        return self.function(*tensors, **{**self.hyper, **hyper})

    def inputs(
        self, *batch: int, dtype: torch.dtype = torch.float64, device: str = "cpu", length: int | None = None
    ) -> list[Tensor]:
        """Random tensors, far from ties and borders; ``length`` replaces the last dimension of each."""
        generator = torch.Generator().manual_seed(7)
        tensors = []
        for shape in self.shapes:
            shape = shape if length is None else (*shape[:-1], length)
            count = torch.Size((*batch, *shape)).numel()
            # A shuffled even grid with a little jitter keeps all entries apart, in any order.
            grid = torch.randperm(max(count, 1), generator=generator, dtype=torch.float64)[:count]
            spread = (grid + 0.2 + 0.6 * torch.rand(count, generator=generator, dtype=torch.float64)) / max(count, 1)
            values = 0.05 + 0.9 * spread if self.unit else 4.0 * spread - 2.03
            tensors.append(values.reshape(*batch, *shape).to(device=device, dtype=dtype))
        return tensors


def check_limit(row: Row) -> None:
    tensors = [t.round() for t in row.inputs(3)] if row.unit else row.inputs(3)
    actual = row(*tensors, **row.limit_hyper)
    torch.testing.assert_close(actual, row.limit(*tensors).to(actual.dtype), atol=row.tolerance, rtol=row.tolerance)


def check_gradients(row: Row) -> None:
    tensors = [t.requires_grad_() for t in row.inputs()]
    if row.estimated:
        first, again = (torch.autograd.grad(row(*tensors).square().sum(), tensors) for _ in range(2))
        torch.testing.assert_close(first, again)
        assert all(g.isfinite().all() and g.any() for g in first)
        return
    assert torch.autograd.gradcheck(row, tensors)
    if row.twice:
        assert torch.autograd.gradgradcheck(row, tensors)


def check_batch(row: Row) -> None:
    tensors = row.inputs(2, 3)
    whole = row(*tensors)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(whole[i, j], row(*(t[i, j] for t in tensors)))
    empty = row(*(t[:0] for t in tensors))
    assert empty.shape == (0, *whole.shape[1:])
    strided = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in tensors]
    torch.testing.assert_close(row(*strided), whole)
    if row.takes_dim:
        moved = row(*(t.movedim(-1, 0) for t in tensors), dim=0)
        back = moved if moved.ndim < tensors[0].ndim else moved.movedim(0, -1)
        torch.testing.assert_close(back, whole)


def check_purity(row: Row) -> None:
    tensors = row.inputs(2)
    copies = [t.clone() for t in tensors]
    row(*tensors)
    for tensor, copy in zip(tensors, copies, strict=True):
        assert torch.equal(tensor, copy)


def check_dtypes(row: Row) -> None:
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.bfloat16, 1e-1)):
        tensors = row.inputs(3, dtype=dtype)
        result = row(*tensors)
        assert result.dtype == dtype
        # What is left is the rounding of the result, once that of the arguments is taken out.
        exact = row(*(t.double() for t in tensors))
        torch.testing.assert_close(result.double(), exact, atol=tolerance, rtol=tolerance)


def check_finite(row: Row) -> None:
    if row.unit:
        cases = [[torch.full_like(t, value) for t in row.inputs(2)] for value in (0.0, 0.5, 1.0)]
        cases.append([t.round() for t in row.inputs(4)])
    else:
        cases = [[torch.full_like(t, value) for t in row.inputs(2)] for value in (0.0, 3.0, -1e4, 1e4)]
        cases.append([1e4 * t for t in row.inputs(2)])
        cases.append([torch.sign(t) * 1e4 for t in row.inputs(2)])
    if row.shapes[0]:
        cases.append(row.inputs(2, length=row.shortest))
    for dtype in (torch.float32, torch.float64):
        for case in cases:
            tensors = [t.to(dtype).requires_grad_() for t in case]
            result = row(*tensors)
            assert result.isfinite().all(), (dtype, case)
            if result.requires_grad:
                for grad in torch.autograd.grad(result.sum(), tensors):
                    assert grad.isfinite().all(), (dtype, case)


def check_nan(row: Row) -> None:
    tensors = row.inputs()
    tensors[0].view(-1)[0] = torch.nan
    if row.black_box is not None:
        with pytest.raises(ValueError, match="must not be NaN"):
            row(*tensors)
        return
    assert row(*tensors).isnan().any()


def check_hyperparameters(row: Row) -> None:
    assert set(row.other) == set(row.hyper), "every hyperparameter needs another value"
    tensors = row.inputs(2)
    default = row(*tensors)
    for name, value in row.other.items():
        assert not torch.allclose(row(*tensors, **{name: value}), default), f"{name} changes nothing"


def check_transforms(row: Row) -> None:
    batched = row.inputs(3)
    if row.black_box is not None:
        with pytest.raises(RuntimeError, match="call it without vmap"):
            torch.func.vmap(row)(*batched)
        return
    torch.testing.assert_close(torch.func.vmap(row)(*batched), row(*batched))
    tensors = row.inputs()
    over = tuple(range(len(tensors)))
    reverse = torch.func.jacrev(row, over)(*tensors)
    forward = torch.func.jacfwd(row, over)(*tensors)
    for r, f in zip(reverse, forward, strict=True):
        torch.testing.assert_close(r, f)
    if row.twice:
        scalar = lambda *ts: (row(*ts) ** 2).sum()  # noqa: E731
        hessian = torch.func.hessian(scalar)(*tensors)
        expected = torch.autograd.functional.hessian(scalar, tuple(tensors))
        torch.testing.assert_close(hessian, expected[0][0])


def check_compile(row: Row, backend: str = "aot_eager") -> None:
    torch._dynamo.reset()
    compiled = torch.compile(row.black_box or row.function, backend=backend, fullgraph=True)
    tensors = [t.requires_grad_() for t in row.inputs(2)]
    if row.black_box is not None:
        with pytest.raises(RuntimeError, match="runs outside of compiled code"):
            compiled(*tensors)
        return
    eager = row(*tensors)
    result = compiled(*tensors, **row.hyper)
    torch.testing.assert_close(result, eager)
    # Weighted, since parts of a gradient that are wrong may add up to 0.
    weights = torch.linspace(-1, 2, result.numel(), dtype=result.dtype, device=result.device).view_as(result)
    grads = torch.autograd.grad(result, tensors, weights)
    torch.testing.assert_close(grads, torch.autograd.grad(eager, tensors, weights))


def check_native(row: Row, monkeypatch: Any) -> None:
    """Kernels and reference agree in value, gradient and second derivative; ``opcheck`` is content."""
    name, constants = row.native_op or ("", ())
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-11)):
        for batch in ((), (1,), (3,), (2, 9)):
            results = []
            tensors = [t.requires_grad_() for t in row.inputs(*batch, dtype=dtype)]
            for module in (native.library.module, None):
                with monkeypatch.context() as patch:
                    patch.setattr(native.library, "module", module)
                    value = row(*tensors)
                    weights = torch.linspace(-1, 1, value.numel(), dtype=dtype).view_as(value)
                    # The sine gives a second derivative to an operator that is linear.
                    gradient = torch.autograd.grad(value.sin(), tensors, weights, create_graph=True)
                    plain = torch.autograd.grad(row(*tensors), tensors, weights)
                    second = torch.autograd.grad(sum((g**2).sum() for g in gradient), tensors)
                    results.append((value, *plain, *gradient, *second))
            torch.testing.assert_close(results[0], results[1], atol=tolerance, rtol=tolerance)
    operator = getattr(torch.ops.softly, name)
    torch.library.opcheck(operator, (row.native_input(row.inputs(3)[0]).requires_grad_(), *constants))


def _boolean(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x: function(x.bool(), dim=-1)


def _heaviside(x: Tensor) -> Tensor:
    return torch.heaviside(x, torch.tensor(0.5, dtype=x.dtype))


def _cdf_row(name: str) -> Row:
    distribution = softly.distributions.get(name)
    if name == "heaviside":
        return Row("cdf[heaviside]", distribution.cdf, _heaviside, twice=False)
    return Row(
        f"cdf[{name}]",
        lambda x, *, steepness: distribution.cdf(steepness * x),
        _heaviside,
        {"steepness": 1e14},  # heavy tails take their time
        hyper={"steepness": 1.3},
        other={"steepness": 2.0},
    )


def _pair_row(name: str, function: Callable[..., Tensor], limit: Callable[..., Tensor], **options: Any) -> Row:
    return Row(
        name,
        function,
        limit,
        {"steepness": 1e9},
        hyper={"distribution": "cauchy", "steepness": 3.0},
        other={"distribution": "logistic", "steepness": 5.0},
        shapes=((3,), (3,)),
        **options,
    )


def _tnorm_row(name: str, kind: str, p: float | None, other: float | None) -> Row:
    def reduce(x: Tensor, *, dim: int = -1, p: float | None = None) -> Tensor:
        return getattr(softly.tnorms.get(name, p=p), kind)(x, dim=dim)

    native_p = {"probabilistic": 1.0, "einstein": 2.0, "hamacher": p}.get(name)
    return Row(
        f"{kind}[{name}{'' if p is None else f', p={p}'}]",
        reduce,
        _boolean(getattr(torch, kind)),
        hyper={} if p is None else {"p": p},
        other={} if p is None else {"p": other},
        unit=True,
        takes_dim=True,
        twice=name != "minimum" and name != "lukasiewicz",
        native_op=("hamacher", (native_p, kind == "any"))
        if native_p
        else ("p_norm", (p,))
        if name in ("yager", "aczel_alsina", "dombi")
        else None,
    )


CORE = [
    *(_cdf_row(name) for name in softly.distributions.names()),
    *(
        _tnorm_row(name, kind, p, other)
        for kind in ("all", "any")
        for name, p, other in [
            ("minimum", None, None),
            ("probabilistic", None, None),
            ("einstein", None, None),
            ("hamacher", 0.5, 3.0),
            ("frank", 4.0, 0.2),
            ("yager", 2.5, 0.7),
            ("yager", 2.0, 3.0),
            ("aczel_alsina", 1.5, 0.6),
            ("dombi", 0.8, 2.0),
            ("schweizer_sklar", -0.7, -3.0),
            ("lukasiewicz", None, None),
        ]
    ),
    _pair_row("minimum", softly.minimum, torch.minimum),
    _pair_row("maximum", softly.maximum, torch.maximum),
    _pair_row("swap.keep", lambda a, b, **hyper: softly.swap(a, b, **hyper).keep, torch.lt),
    _pair_row("less", softly.less, torch.lt),
    _pair_row("greater", softly.greater, torch.gt),
    _pair_row("equal", softly.equal, torch.eq),
    *(
        Row(
            name,
            getattr(softly, name),
            limit,
            {"steepness": 1e9},
            hyper={"steepness": 2.0},
            other={"steepness": 3.0},
            takes_dim=True,
        )
        for name, limit in [
            ("argmax", lambda x: torch.nn.functional.one_hot(x.argmax(-1), x.shape[-1])),
            ("argmin", lambda x: torch.nn.functional.one_hot(x.argmin(-1), x.shape[-1])),
            ("max", lambda x: x.amax(-1)),
            ("min", lambda x: x.amin(-1)),
        ]
    ),
    Row("where", softly.where, lambda p, a, b: torch.where(p.bool(), a, b), shapes=((3,), (3,), (3,)), unit=True),
    *(
        Row(
            name,
            function,
            limit,
            {"steepness": 1e9},
            hyper={"distribution": "cauchy", "steepness": 3.0},
            other={"distribution": "logistic", "steepness": 5.0},
        )
        for name, function, limit in [
            ("abs", softly.abs, torch.abs),
            ("relu", softly.relu, torch.relu),
            ("clamp", lambda x, **hyper: softly.clamp(x, -0.5, 1.0, **hyper), lambda x: x.clamp(-0.5, 1.0)),
            ("sign", softly.sign, torch.sign),
            ("round", softly.round, torch.round),
        ]
    ),
]


def _order(x: Tensor) -> Tensor:
    """The hard permutation matrix P[rank, input]."""
    return torch.nn.functional.one_hot(x.argsort(-1), x.shape[-1])


def _sorter_rows(
    name: str, make: Callable[..., Any], hyper: dict[str, Any], other: dict[str, Any], **options: Any
) -> list[Row]:
    """The methods of a sorter."""
    limits = {
        "sort": lambda x: x.sort(-1).values,
        "permutation": _order,
        "rank": lambda x: x.argsort(-1).argsort(-1) + 1,
        "topk": lambda x: _order(x).flip(-2)[..., :2, :],
        "topk_values": lambda x: x.topk(2, -1).values,
        "log_permutation": _order,
    }

    def function(method: str) -> Callable[..., Tensor]:
        def run(x: Tensor, *, dim: int = -1, **chosen: Any) -> Tensor:
            arguments = (2,) if method.startswith("topk") else ()
            result = getattr(make(**chosen), method)(x, *arguments, dim=dim)
            return result.exp() if method.startswith("log") else result

        return run

    codes = options.pop("native_codes", ())
    ranks = torch.arange(5, 0, -1, dtype=torch.float64).unsqueeze(0)
    native_ops = {
        "sort": ("network_values", codes),
        "permutation": ("network_matrix", codes),
        "rank": ("network_rows", (*codes, 5, ranks)),
        "topk": ("network_rows", (*codes, 2, None)),
    }
    return [
        Row(
            f"{name}.{method}",
            function(method),
            limit,
            {"steepness": 1e8},
            hyper=hyper,
            other=other,
            takes_dim=method in ("sort", "rank", "topk_values"),
            shortest=2 if method.startswith("topk") else 1,
            native_op=native_ops.get(method) if codes else None,
            **options,
        )
        for method, limit in limits.items()
    ]


SORTING = [
    *(
        row
        for network in ("bitonic", "odd_even")
        for row in _sorter_rows(
            network,
            lambda network=network, **hyper: softly.SortingNetwork(network, **hyper),
            {"distribution": "cauchy", "steepness": 3.0},
            {"distribution": "logistic", "steepness": 5.0},
            native_codes=(None, f"{network} 5", 8, -1.0, 3.0),
        )
    ),
    *_sorter_rows("NeuralSort", softly.NeuralSort, {"steepness": 1.0}, {"steepness": 2.0}),
    *_sorter_rows("SoftSort", softly.SoftSort, {"steepness": 3.0}, {"steepness": 5.0}),
]


def _fastsort_row(method: str, regularization: str) -> Row:
    def apply(x: Tensor, *, dim: int = -1, regularization: str, steepness: float) -> Tensor:
        sorter = softly.FastSort(regularization=regularization, steepness=steepness)
        return getattr(sorter, method)(x, dim=dim)

    # Where some neighbours are pooled and some are not.
    return Row(
        f"FastSort.{method}[{regularization}]",
        apply,
        {"sort": lambda x: x.sort(-1).values, "rank": lambda x: x.argsort(-1).argsort(-1) + 1}[method],
        {"steepness": 1e3},
        hyper={"regularization": regularization, "steepness": 0.8},
        other={"regularization": {"l2": "kl", "kl": "l2"}[regularization], "steepness": 0.6},
        takes_dim=True,
        native_op=("permutahedron", (regularization == "kl",)),
        native_input=lambda x: torch.stack((x, x.flip(-1).exp()), -2),
    )


def _grades(x: Tensor) -> Tensor:
    return torch.tensor([1, 0, 2, 1, 3], device=x.device)[: x.shape[-1]].expand(x.shape)


def _better(x: Tensor) -> Tensor:
    return _grades(x).unsqueeze(-1) > _grades(x).unsqueeze(-2)


def _misordered(x: Tensor) -> Tensor:
    """The mean of how far pairs are out of the order of their grades."""
    apart = (x.unsqueeze(-2) - x.unsqueeze(-1)).clamp(min=0)
    return torch.where(_better(x), apart, 0.0).sum((-2, -1)) / _better(x).sum((-2, -1))


def _missed_ndcg(x: Tensor) -> Tensor:
    gains, discounts = 2.0 ** _grades(x).double() - 1, 1 / torch.arange(2, x.shape[-1] + 2).double().log2()
    ranked = gains.gather(-1, x.argsort(-1, descending=True))
    return 1 - (ranked * discounts).sum(-1) / (gains.sort(-1, descending=True).values * discounts).sum(-1)


def _weighted_misordered(x: Tensor) -> Tensor:
    gains, discounts = 2.0 ** _grades(x).double() - 1, 1 / torch.arange(2, x.shape[-1] + 2).double().log2()
    gains = gains / (gains.sort(-1, descending=True).values * discounts).sum(-1, keepdim=True)
    at = discounts[x.argsort(-1, descending=True).argsort(-1)]
    apart = (x.unsqueeze(-2) - x.unsqueeze(-1)).clamp(min=0) / torch.tensor(2.0).double().log()
    for factor in (gains, at):
        apart = apart * (factor.unsqueeze(-1) - factor.unsqueeze(-2)).abs()
    return torch.where(_better(x), apart, 0.0).sum((-2, -1))


def _leaving(x: Tensor) -> Tensor:
    """Entries leave from the highest grade, those of one grade drawn against each other."""
    draws = [(4, [0, 1, 2, 3, 4]), (2, [0, 1, 2, 3]), (0, [0, 1, 3]), (3, [0, 1, 3]), (1, [1])]
    return sum(x[..., left].logsumexp(-1) - x[..., entry] for entry, left in draws)


def _baseline_row(name: str, limit: Callable[[Tensor], Tensor], divide: bool = False, **options: Any) -> Row:
    def loss(x: Tensor, **hyper: Any) -> Tensor:
        value = getattr(softly.sorting, name)(x, _grades(x), reduction="none", **hyper)
        return value / hyper["steepness"] if divide else value

    return Row(name, loss, limit, **options)


def _true_ranks(x: Tensor) -> Tensor:
    return x.detach().argsort(-1).argsort(-1) + 1


def _order_loss(x: Tensor, *, steepness: float, kind: str, log: bool) -> Tensor:
    """The loss of the order that ``x`` has, which tends to 0."""
    sorter = softly.SortingNetwork("odd_even", distribution="logistic", steepness=steepness)
    P = sorter.log_permutation(x) if log else sorter.permutation(x)
    return softly.sorting.ranking_loss(P, _true_ranks(x), kind=kind, log=log, reduction="none")


def _rank_loss(x: Tensor, *, steepness: float) -> Tensor:
    ranks = softly.SoftSort(steepness=steepness).rank(x)
    return softly.sorting.spearman_loss(ranks, _true_ranks(x), reduction="none")


def _ndcg_loss(x: Tensor, *, steepness: float, gain: str) -> Tensor:
    sorter = softly.NeuralSort(steepness=steepness)
    return softly.sorting.ndcg_loss(x, _grades(x), sorter=sorter, gain=gain, reduction="none")


_no_loss = lambda x: torch.zeros_like(x[..., 0])  # noqa: E731

RANKING = [
    *(
        Row(
            f"ranking_loss[{kind}{', log' if log else ''}]",
            lambda x, log=log, **hyper: _order_loss(x, log=log, **hyper),
            _no_loss,
            {"steepness": 1e4},
            hyper={"steepness": 3.0, "kind": kind},
            other={"steepness": 5.0, "kind": other},
        )
        for kind, other in itertools.permutations(("cross_entropy", "binary_cross_entropy"))
        for log in (False, True)
    ),
    Row("spearman_loss", _rank_loss, _no_loss, {"steepness": 1e4}, hyper={"steepness": 3.0}, other={"steepness": 5.0}),
    Row(
        "ndcg_loss",
        _ndcg_loss,
        _missed_ndcg,
        {"steepness": 1e4},
        hyper={"steepness": 1.0, "gain": "exponential"},
        other={"steepness": 2.0, "gain": "linear"},
    ),
    _baseline_row(
        "ranknet_loss",
        _misordered,
        divide=True,
        limit_hyper={"steepness": 1e7},
        hyper={"steepness": 1.0},
        other={"steepness": 2.0},
    ),
    _baseline_row(
        "lambda_loss",
        _weighted_misordered,
        divide=True,
        limit_hyper={"steepness": 1e7},
        hyper={"steepness": 1.0, "weighting": "lambdarank", "gain": "exponential"},
        other={"steepness": 2.0, "weighting": "ndcg2", "gain": "linear"},
    ),
    _baseline_row(
        "approx_ndcg_loss",
        _missed_ndcg,
        limit_hyper={"steepness": 1e7},
        hyper={"steepness": 3.0, "gain": "exponential"},
        other={"steepness": 5.0, "gain": "linear"},
    ),
    _baseline_row("listnet_loss", lambda x: -(_grades(x).double().softmax(-1) * x.log_softmax(-1)).sum(-1)),
    _baseline_row("listmle_loss", _leaving),
]

QUANTILES = [
    Row(
        "median",
        softly.median,
        lambda x: x.quantile(0.5, -1),
        {"steepness": 1e8},
        hyper={"sorter": "odd_even", "distribution": "cauchy", "steepness": 3.0},
        other={"sorter": "bitonic", "distribution": "logistic", "steepness": 5.0},
        takes_dim=True,
    ),
    Row(
        "quantile",
        lambda x, *, q, **hyper: softly.quantile(x, q, **hyper),
        lambda x: x.quantile(0.3, -1),
        {"steepness": 1e8},
        hyper={"q": 0.3, "sorter": "odd_even", "distribution": "cauchy", "steepness": 3.0},
        other={"q": 0.4, "sorter": "bitonic", "distribution": "logistic", "steepness": 5.0},
        takes_dim=True,
    ),
]

FASTSORT = [_fastsort_row(method, name) for method in ("sort", "rank") for name in ("l2", "kl")]

SINKHORN = _sorter_rows("SinkhornSort", softly.SinkhornSort, {"steepness": 0.7}, {"steepness": 1.5})


def _members(x: Tensor) -> Tensor:
    """1 at the two largest, 0 elsewhere."""
    return torch.zeros_like(x).scatter(-1, x.topk(2, -1).indices, 1.0)


def _each_list(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Tensor], Tensor]:
    """A loss of (batch, classes) scores whose labels are all 1, for scores of any shape."""
    return lambda x: loss(
        x.reshape(-1, x.shape[-1]), torch.ones(x.shape[:-1].numel(), dtype=torch.long, device=x.device)
    ).view(x.shape[:-1])


def _topk_loss(x: Tensor, *, steepness: float, **hyper: Any) -> Tensor:
    sorter = softly.TopKNetwork(steepness=steepness)
    return _each_list(softly.TopKCrossEntropy(sorter=sorter, reduction="none", **hyper))(x)


def _rank_of_1(x: Tensor) -> Tensor:
    return (x > x[..., 1:2]).sum(-1)


_EVERY_K = [0.3, 0.2, 0.1, 0.1, 0.1, 0.2]  # so that the limit is finite at every rank


def _topk_loss_row(top1: str, limit: Callable[[Tensor], Tensor]) -> Row:
    return Row(
        f"TopKCrossEntropy[{top1}]",
        _topk_loss,
        limit,
        {"steepness": 1e8, "p_k": _EVERY_K, "m": None, "label_smoothing": 0.0},
        hyper={"p_k": [0.5, 0.3, 0.2], "m": 4, "top1": top1, "label_smoothing": 0.1, "steepness": 3.0},
        other={
            "p_k": [0.2, 0.3, 0.5],
            "m": None,
            "top1": "sort" if top1 == "softmax" else "softmax",
            "label_smoothing": 0.0,
            "steepness": 5.0,
        },
        shapes=((6,),),
        shortest=3,
        native_op=("logsumexp", ()) if top1 == "softmax" else None,
    )


def _accepted(x: Tensor, first: int) -> Tensor:
    """How much of the distribution over k >= first accepts class 1."""
    p_k = torch.tensor([0.0] * first + _EVERY_K[first:], dtype=x.dtype)
    return p_k.flip(-1).cumsum(-1).flip(-1)[_rank_of_1(x)]


def _knn(x: Tensor, *, k: int, steepness: float) -> Tensor:
    keys, labels = _keys(x)
    sorter = softly.TopKNetwork(steepness=steepness)
    return softly.selection.soft_knn(x, keys, labels, k, sorter=sorter, num_classes=3)


def _keys(x: Tensor) -> tuple[Tensor, Tensor]:
    keys = torch.tensor([[0.0, 0.3], [1.0, -1.1], [-1.2, 0.4], [0.7, 1.3], [-0.6, -0.9]])
    return keys[:, : x.shape[-1]].to(x), torch.tensor([0, 1, 2, 1, 0], device=x.device)


def _hard_knn(x: Tensor) -> Tensor:
    keys, labels = _keys(x)
    nearest = (x.unsqueeze(-2) - keys).square().sum(-1).topk(3, largest=False).indices
    return torch.nn.functional.one_hot(labels[nearest], 3).double().mean(-2)


def _recall(x: Tensor, *, k: int, steepness: float) -> Tensor:
    relevant = torch.arange(x.shape[-1], device=x.device).remainder(2).bool().expand(x.shape)
    sorter = softly.TopKNetwork(steepness=steepness)
    return softly.selection.recall_loss(x, relevant, k, sorter=sorter, reduction="none")


def _hard_smooth_topk(x: Tensor) -> Tensor:
    others = torch.cat([x[..., :1], x[..., 2:]], -1)
    return (1 + (others.topk(2).values[..., -1] - x[..., 1]) / 2).clamp(min=0)


SELECTION = [
    _topk_loss_row("sort", lambda x: -_accepted(x, 0).log()),
    _topk_loss_row("softmax", lambda x: -(_EVERY_K[0] * x.softmax(-1)[..., 1] + _accepted(x, 1)).log()),
    _topk_loss_row(
        "separate",
        lambda x: -_EVERY_K[0] * x.log_softmax(-1)[..., 1] - 0.7 * (_accepted(x, 1) / 0.7).log(),
    ),
    Row(
        "SmoothTopKLoss",
        lambda x, **hyper: _each_list(softly.selection.SmoothTopKLoss(reduction="none", **hyper))(x),
        _hard_smooth_topk,
        {"steepness": 1e8},
        hyper={"k": 2, "steepness": 3.0},
        other={"k": 1, "steepness": 5.0},
        shortest=3,
    ),
    Row(
        "soft_knn",
        _knn,
        _hard_knn,
        {"steepness": 1e8},
        hyper={"k": 3, "steepness": 1.0},
        other={"k": 2, "steepness": 3.0},
        shapes=((2,),),
    ),
    Row(
        "recall_loss",
        _recall,
        lambda x: 1 - x.topk(2).indices.remainder(2).double().sum(-1) / 2,
        {"steepness": 1e8},
        hyper={"k": 2, "steepness": 3.0},
        other={"k": 3, "steepness": 5.0},
        shortest=2,
    ),
    Row(
        "TopKNetwork.topk",
        lambda x, **hyper: softly.TopKNetwork(**hyper).topk(x, 2),
        lambda x: _order(x).flip(-2)[..., :2, :],
        {"steepness": 1e8},
        hyper={"network": "splitter", "distribution": "cauchy", "steepness": 3.0},
        other={"network": "odd_even", "distribution": "logistic", "steepness": 5.0},
        shortest=2,
        native_op=("network_rows", (None, "splitter 5 2", 8, -1.0, 3.0, 2, None)),
    ),
    Row(
        "soft_topk",
        lambda x, *, k, **hyper: softly.selection.soft_topk(x, k, **hyper),
        _members,
        {"steepness": 1e8},
        hyper={"k": 2, "distribution": "logistic", "steepness": 3.0},
        other={"k": 1.5, "distribution": "cauchy", "steepness": 5.0},
        takes_dim=True,
        shortest=2,
    ),
    Row(
        "TopKGate",
        lambda x, *, k, **hyper: softly.selection.TopKGate(k, **hyper)(x),
        lambda x: torch.softmax(torch.where(_members(x) > 0, x, -torch.inf), -1),
        {"steepness": 1e8},
        hyper={"k": 2, "distribution": "logistic", "steepness": 3.0},
        other={"k": 1, "distribution": "cauchy", "steepness": 5.0},
    ),
]


def _logic_model(kind: str, seed: int, tnorm: str, sharp: bool, dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(seed)
    if kind == "layer":
        model: torch.nn.Module = softly.logic.LogicLayer(5, 6, seed=seed, tnorm=tnorm)
    else:
        model = softly.logic.LogicNetwork(5, [9, 7, 6], 2, seed=seed, tnorm=tnorm, tau=3.0, beta=0.5)
    for weight in model.parameters():
        weight.requires_grad_(False)
        if sharp:
            weight *= 1e4
    return model.to(dtype)


# Made beforehand, since making a model can't be compiled.
_LOGIC = {
    choice: _logic_model(*choice)
    for choice in itertools.product(
        ("layer", "network"),
        (0, 1),
        ("probabilistic", "einstein"),
        (False, True),
        (torch.float64, torch.float32, torch.bfloat16),
    )
}


def _logic_row(kind: str) -> Row:
    def apply(x: Tensor, *, seed: int, tnorm: str, sharp: bool = False) -> Tensor:
        return _LOGIC[kind, seed, tnorm, sharp, x.dtype](x)

    hard = deepcopy(_LOGIC[kind, 0, "probabilistic", False, torch.float64]).eval()
    layers = [hard] if kind == "layer" else list(hard.layers)
    constants = (
        torch.cat([layer.train().weight.softmax(-1) @ softly.logic.gates.COEFFICIENTS for layer in layers]),
        [layer.wires for layer in layers],
        [1.0 for _ in layers],
        0 if kind == "layer" else 2,
    )
    return Row(
        {"layer": "LogicLayer", "network": "LogicNetwork"}[kind],
        apply,
        hard.eval(),
        {"sharp": True},
        hyper={"seed": 0, "tnorm": "probabilistic"},
        other={"seed": 1, "tnorm": "einstein"},
        unit=True,
        shortest=5,
        tolerance=1e-4,
        native_op=("logic_stack", constants),
        native_input=lambda x: x.t().contiguous(),
    )


LOGIC = [
    _logic_row("layer"),
    _logic_row("network"),
    Row(
        "gates.relaxed",
        softly.logic.gates.relaxed,
        lambda a, b: softly.logic.gates.TRUTH.T[(2 * a + b).long()],
        hyper={"tnorm": "probabilistic"},
        other={"tnorm": "yager"},
        shapes=((4,), (4,)),
        unit=True,
    ),
    Row(
        "GroupSum",
        lambda x, **hyper: softly.logic.GroupSum(**hyper)(x),
        lambda x: torch.stack((x[..., :2].sum(-1), x[..., 2:].sum(-1)), -1),
        {"tau": 1.0, "beta": 0.0},
        hyper={"k": 2, "tau": 3.0, "beta": 0.5},
        other={"k": 1, "tau": 2.0, "beta": 0.0},
        shapes=((4,),),
        shortest=2,
    ),
]


def _edits(s: Tensor, t: Tensor) -> Tensor:
    """The edit distances of all prefixes, with the hard minimum."""
    costs = 1.0 - torch.cosine_similarity(s.unsqueeze(-2), t.unsqueeze(-3), dim=-1)
    n, m = costs.shape[-2:]
    d = {(i, 0): torch.full_like(costs[..., 0, 0], i) for i in range(n + 1)}
    d |= {(0, j): torch.full_like(costs[..., 0, 0], j) for j in range(m + 1)}
    for i in range(n):
        for j in range(m):
            options = (d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + costs[..., i, j])
            d[i + 1, j + 1] = torch.stack(options).amin(0)
    return torch.stack([torch.stack([d[i, j] for j in range(m + 1)], -1) for i in range(n + 1)], -2)


def _grid_distances(x: Tensor) -> Tensor:
    """The distances from the first cell of a grid, by relaxing all of its cells until nothing can change."""
    costs = x.abs() + 0.1
    distances = torch.full_like(costs, torch.inf)
    distances[..., 0, 0] = costs[..., 0, 0]
    for _ in range(costs.shape[-2] * costs.shape[-1]):
        framed = torch.nn.functional.pad(distances, (1, 1, 1, 1), value=torch.inf)
        windows = framed.unfold(-2, 3, 1).unfold(-2, 3, 1).flatten(-2)
        distances = torch.minimum(distances, windows.amin(-1) + costs)
    return distances


PROGRAMS = [
    Row(
        "levenshtein",
        lambda s, t, **hyper: softly.algorithms.library.levenshtein(s, t, **hyper).matrix,
        _edits,
        {"steepness": 1e7},
        hyper={"steepness": 3.0, "similarity": "cosine"},
        other={"steepness": 5.0, "similarity": "inner"},
        shapes=((3, 4), (2, 4)),
        native_op=("levenshtein", (3.0,)),
    ),
    *(
        Row(
            f"shortest_path.{part}",
            lambda x, part=part, **hyper: getattr(
                softly.algorithms.library.shortest_path(x.abs() + 0.1, **hyper), part
            ),
            limit,
            {"steepness": 1e7},
            hyper={"steepness": 3.0, "rounds": 8},
            other={"steepness": 5.0, "rounds": 3},
            shapes=((3, 3),),
            native_op=("shortest_path", (3, 3, 8, 3.0)),
            native_input=lambda x: x.flatten(1).t().abs() + 0.1,
        )
        for part, limit in [
            ("distances", _grid_distances),
            # A path is where the way from the one end and that from the other add up to the shortest.
            ("path", lambda x: _on_shortest_path(x)),
        ]
    ),
]


def _on_shortest_path(x: Tensor) -> Tensor:
    there, back = _grid_distances(x), _grid_distances(x.flip(-1, -2)).flip(-1, -2)
    return (there + back - (x.abs() + 0.1) - there[..., -1:, -1:]).abs() < 1e-9


def _path_costs(x: Tensor) -> Tensor:
    """The costs of the cells on the shortest path, whose derivatives are those of the cells."""
    costs = x.abs() + 0.1
    path = softly.estimators.solvers.shortest_path(costs)
    return torch.where(path == 0, 0.0, costs)  # not NaN, where a path is not known


def _steps(x: Tensor) -> Tensor:
    return torch.floor(2.0 * x).sum(-1)


_ranking = softly.estimators.solvers.ranking


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _first(x: Tensor) -> Tensor:
    return (torch.arange(x.shape[-1], device=x.device) == 0).to(x).expand(x.shape)


class _FirstIsBest(softly.estimators.FenchelYoungLoss):
    def forward(self, y: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(y, _first(y))


def _quartic(x: Tensor) -> Tensor:
    return (x.pow(4).sum(-1) + x.square().sum(-1)) / 4


def _black_box_row(
    name: str, make: Callable[..., Any], limit: Callable[[Tensor], Tensor], estimated: bool = True, **options: Any
) -> Row:
    """An estimator or a loss, ``make(**hyper)``, of examples (B, n), all of which get the same random numbers."""

    def run(x: Tensor, **hyper: Any) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        parts = [make(**hyper)(flat[i : i + 1]).reshape(1, -1) for i in range(len(flat))]
        result = torch.cat(parts) if parts else flat.new_zeros(0, limit(flat.new_zeros(1, x.shape[-1])).numel())
        return result.reshape((*x.shape[:-1], *limit(flat.new_zeros(x.shape[-1])).shape))

    black_box = make(**options.get("hyper", {}))
    return Row(name, run, limit, twice=False, estimated=estimated, black_box=black_box, **options)


_NOISE = {"scale": 0.5, "num_samples": 64, "distribution": "gaussian", "antithetic": False, "sampler": "random"}
_OTHER_NOISE = {"scale": 1.0, "num_samples": 60, "distribution": "cauchy", "antithetic": True, "sampler": "sobol"}
_NO_NOISE = {"limit_hyper": {"scale": 1e-6}, "hyper": _NOISE, "other": _OTHER_NOISE}

ESTIMATORS = [
    Row(
        "solvers.shortest_path",
        _path_costs,
        lambda x: torch.where(_on_shortest_path(x), x.abs() + 0.1, 0.0),
        shapes=((3, 3),),
        native_op=("grid_path", (False,)),
        native_input=lambda x: x.abs() + 0.1,
    ),
    _black_box_row(
        "FenchelYoungLoss",
        lambda **hyper: _FirstIsBest(_ranking, generator=_seeded(), reduction="none", **hyper),
        lambda x: (x * (_ranking(x) - _first(x))).sum(-1),
        estimated=False,
        **_NO_NOISE,
    ),
    _black_box_row(
        "smooth", lambda **hyper: softly.estimators.smooth(_steps, generator=_seeded(), **hyper), _steps, **_NO_NOISE
    ),
    _black_box_row(
        "PerturbedOptimizer",
        lambda **hyper: softly.estimators.PerturbedOptimizer(_ranking, generator=_seeded(), **hyper),
        _ranking,
        **_NO_NOISE,
    ),
    _black_box_row(
        "Imle", lambda **hyper: softly.estimators.Imle(_ranking, generator=_seeded(), **hyper), _ranking, **_NO_NOISE
    ),
    _black_box_row("blackbox", lambda: softly.estimators.blackbox(_ranking, strength=5.0, sense="max"), _ranking),
    _black_box_row(
        "NewtonLoss",
        lambda **hyper: softly.NewtonLoss(_quartic, **hyper),
        lambda x: 0.5 * ((x**3 + 0.5 * x) / (3 * x**2 + 0.5)).square().sum(-1),
        limit_hyper={"tikhonov": 0.0, "curvature": "elementwise"},
        hyper={"tikhonov": 0.5, "curvature": "hessian"},
        other={"tikhonov": "auto", "curvature": "fisher"},
    ),
    _black_box_row(
        "Resgro",
        lambda **hyper: softly.Resgro(_quartic, generator=_seeded(), **hyper),
        lambda x: torch.zeros_like(x[..., 0]),
        limit_hyper={"scale": 1e-6},
        hyper={"scale": 0.5, "num_samples": 8, "subset_size": 3, "num_sets": None, "distribution": "gaussian"},
        other={"scale": 1.0, "num_samples": 9, "subset_size": 4, "num_sets": 2, "distribution": "cauchy"},
    ),
]

_TETRAHEDRON = torch.tensor([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])


def _silhouette(x: Tensor, *, steepness: float, image_size: tuple[int, int] = (4, 5), **hyper: Any) -> Tensor:
    renderer = softly.Renderer(image_size, steepness=steepness, **hyper)
    camera = softly.rendering.Camera.look_at(distance=5.0, elevation=20.0, azimuth=30.0)
    mesh = softly.rendering.Mesh(x.reshape(-1, 4, 3), _TETRAHEDRON.to(x.device))
    return renderer.silhouette(mesh, camera).reshape(*x.shape[:-2], *image_size)


def _met(x: Tensor) -> tuple[Tensor, Tensor]:
    """(n, 20, 4) Whether the ray of a pixel meets a face, by the volumes that it spans with its edges, and how deep."""
    camera = softly.rendering.Camera.look_at(distance=5.0, elevation=20.0, azimuth=30.0)
    points = camera.view(x.reshape(-1, 4, 3))
    size = 3.0**-0.5
    rows, columns = torch.meshgrid(0.75 - 0.5 * torch.arange(4), 0.5 * torch.arange(5) - 1.0, indexing="ij")
    rays = torch.stack([columns * size, rows * size, torch.ones_like(rows)], -1).double().view(-1, 1, 1, 3)
    a, b, c = points[:, None, _TETRAHEDRON].unbind(-2)
    volumes = [(torch.linalg.cross(p, q) * rays[..., 0, :]).sum(-1) for p, q in ((a, b), (b, c), (c, a))]
    sides = torch.stack(volumes, -1)
    depth = (sides * torch.stack([c[..., 2], a[..., 2], b[..., 2]], -1)).sum(-1) / sides.sum(-1)
    return (sides > 0).all(-1) | (sides < 0).all(-1), depth


def _hard_silhouette(x: Tensor) -> Tensor:
    return _met(x)[0].any(-1).double().view(*x.shape[:-2], 4, 5)


_PAINT = [[0.9, 0.1, 0.2], [0.3, 0.8, 0.1], [0.2, 0.4, 0.7], [0.6, 0.5, 0.9]]


def _image(x: Tensor, *, steepness: float, **hyper: Any) -> Tensor:
    renderer = softly.Renderer((4, 5), steepness=steepness, **hyper)
    camera = softly.rendering.Camera.look_at(distance=5.0, elevation=20.0, azimuth=30.0)
    faces = _TETRAHEDRON.to(x.device)
    mesh = softly.rendering.Mesh(x.reshape(-1, 4, 3), faces, face_colors=x.new_tensor(_PAINT))
    return renderer(mesh, camera).reshape(*x.shape[:-2], 4, 4, 5)


def _hard_image(x: Tensor) -> Tensor:
    """The paint of the nearest face that the ray of a pixel meets, and the silhouette."""
    hit, depth = _met(x)
    nearest = torch.where(hit, depth, torch.inf).argmin(-1)
    paint = torch.where(hit.any(-1, keepdim=True), x.new_tensor(_PAINT)[nearest], 0.0)
    return torch.cat([paint.mT.reshape(*x.shape[:-2], 3, 4, 5), _hard_silhouette(x).unsqueeze(-3)], -3)


def _renderer_row(name: str, hyper: dict[str, Any], other: dict[str, Any], *numbers: Any) -> Row:
    return Row(
        f"Renderer.silhouette[{name}]",
        _silhouette,
        _hard_silhouette,
        {"steepness": 1e7},
        hyper={"steepness": 3.0, **hyper},
        other={"steepness": 5.0, **other},
        shapes=((4, 3),),
        shortest=3,
        native_op=("silhouette", (torch.tensor(3.0, dtype=torch.float64), None, 4, 5, *numbers)),
        native_input=lambda x: x[..., _TETRAHEDRON, :2],
    )


def _blended_scene() -> tuple[Any, ...]:
    """What the operator is given beside polygons of three tetrahedra: corners, depths, colours and background."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(3, 4, 3, 3, generator=generator, dtype=torch.float64) + 1.0
    colors, behind = (torch.rand(3, *shape, generator=generator).double() for shape in ((4, 3, 3), (3, 4, 5)))
    return torch.tensor(3.0, dtype=torch.float64), corners, corners[..., 2].clone(), colors, behind


RENDERING = [
    _renderer_row(
        "logistic",
        {"distribution": "logistic"},
        {"distribution": "cauchy"},
        *(6, False, 0.0, False, 1, 1.0, -1.0, 1e-16),
    ),
    _renderer_row(
        "gaussian, yager, squared",
        {"distribution": "gaussian", "tconorm": "yager", "squared": True},
        {"distribution": "cauchy", "tconorm": "einstein", "squared": False},
        *(4, False, 0.0, True, 3, 2.0, -1.0, 1e-16),
    ),
    Row(
        "Renderer[nearest]",
        _image,
        _hard_image,
        {"steepness": 1e7},
        hyper={"steepness": 3.0, "distribution": "logistic", "shading": "nearest"},
        other={"steepness": 5.0, "distribution": "cauchy", "shading": "softmax"},
        shapes=((4, 3),),
        shortest=3,
    ),
    Row(
        "Renderer[softmax]",
        _image,
        _hard_image,
        {"steepness": 1e7, "depth_sharpness": 1e9},
        hyper={"steepness": 3.0, "distribution": "logistic", "shading": "softmax", "depth_sharpness": 30.0},
        other={"steepness": 5.0, "distribution": "cauchy", "shading": "nearest", "depth_sharpness": 60.0},
        shapes=((4, 3),),
        shortest=3,
        native_op=(
            "blend",
            (*_blended_scene(), None, 4, 5, 6, False, 0.0, False, -1.0, 0.1, 10.0, 30.0, 1e-17),
        ),
        native_input=lambda x: x[..., _TETRAHEDRON, :2],
    ),
]

ROWS = [
    *(*CORE, *SORTING, *QUANTILES, *RANKING, *SELECTION, *FASTSORT, *SINKHORN, *LOGIC, *PROGRAMS),
    *(*ESTIMATORS, *RENDERING),
]
