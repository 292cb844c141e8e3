"""Top-k: selection networks and the loss over them against difftopk, and long vectors against torch.topk."""

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Iterator

import torch

import softly
from benchmarks.baselines.topk import DenseSelection
from benchmarks.harness import Case, Function, forward_backward

P_K = [0.5, 0.0, 0.0, 0.0, 0.5]


def cases() -> Iterator[Case]:
    generator = torch.Generator().manual_seed(0)
    difftopk = None
    if importlib.util.find_spec("difftopk"):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints which of its own parts are missing
            difftopk = importlib.import_module("difftopk")

    n, k, steepness = 1000, 5, 10.0
    x = torch.randn(4, n, generator=generator)
    network = softly.selection.networks.get("splitter", n, k)
    dense = DenseSelection(n, [list(layer) for layer in network.layers], list(network.outputs), steepness)
    ours = softly.TopKNetwork(steepness=steepness)
    select = lambda y: ours.topk(y, k).square()  # noqa: E731
    torch.testing.assert_close(ours.topk(x, k), dense(x), atol=1e-4, rtol=1e-3)
    peers: dict[str, Function] = {"torch, dense": forward_backward(lambda y: dense(y).square(), x)}
    if difftopk is not None:
        bitonic = difftopk.DiffTopkNet("bitonic", n, k, sparse=False, steepness=steepness, distribution="cauchy")
        peers["difftopk, bitonic__non_sparse"] = forward_backward(lambda y: bitonic(y)[1].square(), x)
    yield Case(f"splitter, {len(x)} × {n}, k = {k}, forward and backward", forward_backward(select, x), peers)

    batch, m = 500, 16
    scores, labels = torch.randn(batch, n, generator=generator), torch.randint(0, n, (batch,), generator=generator)
    loss = softly.TopKCrossEntropy(P_K, sorter=ours, m=m)
    peers = {}
    if difftopk is not None:
        theirs = difftopk.TopKCrossEntropyLoss("bitonic__non_sparse", steepness, P_K, n, m, distribution="cauchy")
        peers["difftopk, bitonic__non_sparse"] = forward_backward(lambda s: theirs(s, labels), scores)
    if peers:
        name = f"loss, {batch} × {n}, m = {m}, forward and backward"
        yield Case(name, forward_backward(lambda s: loss(s, labels), scores), peers)

    long = torch.randn(1_000_000, generator=generator)
    for k in (5, 1000):
        yield Case(
            f"soft top-{k} of a million, forward",
            lambda k=k: softly.selection.soft_topk(long, k),
            {"torch.topk, hard": lambda k=k: torch.topk(long, k)},
        )
