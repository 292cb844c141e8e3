"""The compiled module's threads and instruction sets, seen through one kernel."""

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import softly

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not softly.native.available(), reason="needs the compiled module"),
]

ROWS, COLUMNS = 3000, 37  # several pieces for each thread, and a row that no vector divides


def any_by_kernel(x, threads):
    out = torch.full(x.shape[:-1], torch.nan, dtype=x.dtype)
    kernel = softly.native.kernel("hamacher", x.dtype)
    kernel(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], 1.0, True, threads)
    return out


@pytest.fixture
def x():
    return torch.rand(ROWS, COLUMNS, dtype=torch.float64) / COLUMNS


@pytest.mark.parametrize("threads", [-1, 0, 1, 2, 3, 64])
def test_every_number_of_threads_gives_the_same(x, threads):
    assert torch.equal(any_by_kernel(x, threads), any_by_kernel(x, 1))


def test_several_callers_at_once(x):
    expected = any_by_kernel(x, 1)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda i: any_by_kernel(x, 1 + i % 4), range(200)))
    assert all(torch.equal(result, expected) for result in results)


def test_pool_works_in_a_forked_child():
    script = f"""
import os, sys, threading
sys.path.insert(0, {os.path.dirname(__file__)!r})
import torch
from test_parallel import any_by_kernel
x = torch.rand({ROWS}, {COLUMNS}, dtype=torch.float64) / {COLUMNS}
expected = any_by_kernel(x, 3)
stop = threading.Event()
def keep_the_pool_busy():
    while not stop.is_set():
        any_by_kernel(x, 3)
busy = threading.Thread(target=keep_the_pool_busy)
busy.start()
children = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        same = all((any_by_kernel(x, 3) == expected).all() for _ in range(5))
        alone = sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
        os._exit(2 if alone else 0 if same else 1)  # a child has threads of its own
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.set()
busy.join()
assert (any_by_kernel(x, 3) == expected).all()
assert codes == [0] * 10, codes
"""
    # Without OMP_NUM_THREADS=1 a child could wait for threads of torch's, which fork doesn't copy either.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=environment)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "GOMP_parallel"), reason="torch has no threads of OpenMP"
)
def test_torch_and_kernels_share_threads():
    script = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import torch
from test_parallel import any_by_kernel
torch.set_num_threads(3)
torch.rand(1 << 20).exp()
x = torch.rand({ROWS}, {COLUMNS}, dtype=torch.float64) / {COLUMNS}
before = len(os.listdir("/proc/self/task"))
any_by_kernel(x, 3)
assert len(os.listdir("/proc/self/task")) == before
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=environment)


def test_kernels_have_threads_where_torch_has_not():
    script = f"""
import importlib.util, os, sys
import numpy as np
spec = importlib.util.spec_from_file_location("_native", {softly.native.library.module.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
x = np.random.default_rng(0).random(({ROWS}, {COLUMNS})) / {COLUMNS}
def run(threads):
    out = np.full({ROWS}, np.nan)
    module.hamacher_f64(x.ctypes.data, out.ctypes.data, *x.shape, 1.0, True, threads)
    return out
assert all((run(threads) == run(1)).all() for threads in (2, 3, 16))
assert "torch" not in sys.modules
assert sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=environment)


def test_portable_code_gives_the_same(tmp_path):
    script = f"""
import sys, torch, softly
torch.manual_seed(0)
results = []
for dtype in (torch.float32, torch.float64):
    x = (torch.rand(50, {COLUMNS}, dtype=dtype) / {COLUMNS}).requires_grad_()
    for t in ("probabilistic", "einstein"):
        value = softly.tnorms.get(t).any(x)
        results += [value.detach(), *torch.autograd.grad(value.sum(), x)]
torch.save((softly.native.isa(), results), sys.argv[1])
"""
    found = {}
    unforced = {name: value for name, value in os.environ.items() if name != "SOFTLY_ISA"}
    for name, environment in (("portable", {**unforced, "SOFTLY_ISA": "portable"}), ("chosen", unforced)):
        path = tmp_path / f"{name}.pt"
        subprocess.run([sys.executable, "-c", script, path], check=True, timeout=120, env=environment)
        found[name] = torch.load(path)
    assert found["portable"][0] == "portable"
    for portable, chosen in zip(found["portable"][1], found["chosen"][1], strict=True):
        torch.testing.assert_close(portable, chosen)
