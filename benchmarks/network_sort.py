"""Relaxed sorting networks with the Cauchy distribution: forward and backward, against torch and diffsort."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import softly
from benchmarks.baselines import network_sort as baseline
from benchmarks.harness import Case, Function, OnThreads, forward_backward
from softly.sorting.networks import Network

STEEPNESS = 10.0

# Network, values, vectors, and whether diffsort takes part: its dense layers take minutes for 1,024 values.
MATRICES = (
    ("bitonic", 32, 64, True),
    ("bitonic", 128, 64, True),
    ("bitonic", 1024, 2, False),
    ("odd_even", 32, 64, True),
    ("odd_even", 128, 16, True),
)
VALUES = (("bitonic", 128, 256), ("bitonic", 1024, 64), ("odd_even", 128, 256))
ROWS = (("bitonic", 1024, 16, 5),)
THREADED = (("bitonic", 128, 64), ("bitonic", 128, 256), ("odd_even", 128, 256))


def cases() -> Iterator[Case]:
    for name, n, batch, peer in MATRICES:
        network, x = softly.sorting.networks.get(name, n), _inputs(batch, n)
        layers = baseline.prepare(network.layers, n)
        ours = softly.SortingNetwork(name, steepness=STEEPNESS).permutation
        torch.testing.assert_close(ours(x), baseline.permutation(x, layers, STEEPNESS), atol=1e-5, rtol=0)
        peers = {
            "torch": forward_backward(_assigned(network, matrix=True), x),
            "torch, gathered": forward_backward(_with(baseline.permutation, layers), x),
        }
        if peer:
            peers.update(_diffsort(name, n, x))
        flops = 12.0 * batch * _entries(network)
        note = (lambda _, name=name, n=n: f"{_megabytes(name, n):.0f} MB a sample") if n >= 1024 else None
        yield Case(f"{name}, matrix of {batch} × {n}", forward_backward(ours, x), peers, flops, note)
    for name, n, batch in VALUES:
        network, x = softly.sorting.networks.get(name, n), _inputs(batch, n)
        layers = baseline.prepare(network.layers, n)
        ours = softly.SortingNetwork(name, steepness=STEEPNESS).sort
        torch.testing.assert_close(ours(x), baseline.values(x, layers, STEEPNESS), atol=1e-4, rtol=0)
        peers = {
            "torch": forward_backward(_assigned(network, matrix=False), x),
            "torch, gathered": forward_backward(_with(baseline.values, layers), x),
        }
        # 30 operations a comparator forwards, 19 of them for the arctangent, and 4 backwards.
        flops = 34.0 * batch * len(network.wires) / 2
        yield Case(f"{name}, values of {batch} × {n}", forward_backward(ours, x), peers, flops)
    for name, n, batch, k in ROWS:
        sorter, x = softly.SortingNetwork(name, steepness=STEEPNESS), _inputs(batch, n)
        ours = forward_backward(lambda x, k=k, sorter=sorter: sorter.topk(x, k), x)
        peers = {"rows of the whole matrix": forward_backward(sorter.permutation, x)}
        yield Case(f"{name}, top {k} rows of {batch} × {n}", ours, peers)
    for name, n, batch in THREADED:
        sorter, x = softly.SortingNetwork(name, steepness=STEEPNESS), _inputs(batch, n).requires_grad_()
        # Without a sum to differentiate: torch's own threads go on spinning after it, on the cores that these need.
        weights = torch.randn(batch, n, n, generator=torch.Generator().manual_seed(1))
        call = lambda sorter=sorter, x=x, w=weights: torch.autograd.grad(sorter.permutation(x), x, w)  # noqa: E731
        yield Case(f"{name}, matrix of {batch} × {n}, two threads", OnThreads(2, call), {"one": OnThreads(1, call)})


def _inputs(batch: int, n: int) -> Tensor:
    return torch.randn(batch, n, generator=torch.Generator().manual_seed(0))


def _assigned(network: Network, *, matrix: bool) -> Callable[[Tensor], Tensor]:
    ends = [(torch.tensor(i), torch.tensor(j)) for i, j in (zip(*layer, strict=True) for layer in network.layers)]
    return lambda x: baseline.assigned(x, ends, STEEPNESS, matrix)


def _with(function: Callable[..., Tensor], layers: baseline.Layers) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x, layers, STEEPNESS)


def _diffsort(name: str, n: int, x: Tensor) -> dict[str, Function]:
    try:
        from diffsort import DiffSortNet
    except ImportError:
        return {}
    sorter = DiffSortNet(name, n, steepness=STEEPNESS, distribution="cauchy")
    return {"diffsort": forward_backward(lambda x: sorter(x)[1], x)}


def _megabytes(name: str, n: int) -> float:
    """What a matrix and its gradient take at their peak, from processes with 8 and with 24 of them."""
    peaks = []
    for batch in (8, 24):
        program = f"""
import torch, softly
torch.set_num_threads(1)
x = torch.randn({batch}, {n}, requires_grad=True)
softly.SortingNetwork("{name}").permutation(x).sum().backward()
print(open("/proc/self/status").read())
"""
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout.partition("VmHWM:")[2].split()[0]))
    return (peaks[1] - peaks[0]) / 16 / 1024


def _entries(network: Network) -> int:
    """How many entries of P the comparators change, without those that are zero by structure.

    Each takes 5 operations forwards (the difference, and two multiplications with additions) and 7 backwards.
    """
    support = [1 << wire for wire in range(network.n)]
    entries = 0
    for layer in network.layers:
        for i, j in layer:
            support[i] = support[j] = support[i] | support[j]
            entries += support[i].bit_count()
    return entries
