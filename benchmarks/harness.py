"""Times functions against each other: interleaved, so that a busy machine slows all of them alike."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

Function = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One task, done by softly and by others.

    Attributes:
        name: The task with its size.
        softly: Does it with softly.
        peers: The same by others; `benchmarks.baselines` has frozen, idiomatic torch.
        flops: The floating-point operations that the task cannot do without, if they are what limits it.
        note: What else is to be said of softly's seconds.
        shares: What part of the task a peer does, whose seconds are counted for the whole; all of it by default.
    """

    name: str
    softly: Function
    peers: dict[str, Function]
    flops: float | None = None
    note: Callable[[float], str] | None = None
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """Seconds a call in the best of all rounds, and how many times those of softly they are."""

    seconds: float
    ratio: float


def forward_backward(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Function:
    """The function and its gradient in ``x``, as a training step needs them."""
    x = x.detach().clone().requires_grad_()

    def call() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(function(x).sum(), x)
        return gradient

    return call


@dataclass(frozen=True)
class OnThreads:
    """The same on so many threads, which are there before time is taken: to change their number takes time, too."""

    threads: int
    call: Function

    def __call__(self) -> object:
        return self.call()


@contextmanager
def _prepared(function: Function) -> Iterator[None]:
    """On the function's threads, warm."""
    before = torch.get_num_threads()
    torch.set_num_threads(getattr(function, "threads", before))
    try:
        function()
        yield
    finally:
        torch.set_num_threads(before)


def repetitions(function: Function, seconds: float) -> int:
    """How often the function runs in so many seconds, at least once; the first call is left out."""
    with _prepared(function):
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            function()
            count += 1
    return max(count, 1)


def duration(function: Function, count: int) -> float:
    """Seconds a call, of so many in a row; the first call is left out."""
    with _prepared(function):
        started = time.perf_counter()
        for _ in range(count):
            function()
        return (time.perf_counter() - started) / count


def keep_freed_memory() -> None:
    """Let glibc keep what is freed, so that nobody's time is that of the kernel handing out zeroed pages anew."""
    M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_MMAP_THRESHOLD, 2**25)


def attainable_flops(seconds: float = 0.2) -> float:
    """Floating-point operations a second: what the machine's matrix multiplication reaches, on its threads."""
    a = torch.rand(512, 512)
    count = repetitions(lambda: a @ a, seconds)
    return 2 * 512**3 / min(duration(lambda: a @ a, count) for _ in range(5))


def measure(case: Case, *, rounds: int = 15, seconds: float = 0.02) -> dict[str, Timing]:
    """Time softly and its peers in turn, ``seconds`` each, ``rounds`` times."""
    functions = {"softly": case.softly, **case.peers}
    counts = {name: repetitions(function, seconds) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(duration(function, counts[name]))
    best = {name: min(taken) / case.shares.get(name, 1.0) for name, taken in times.items()}
    return {name: Timing(seconds, seconds / best["softly"]) for name, seconds in best.items()}
