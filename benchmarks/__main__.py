"""Runs all benchmarks, or those whose names are given: python -m benchmarks [NAME ...] [--threads N]."""

import argparse
import importlib

import torch

import softly
from benchmarks.harness import attainable_flops, keep_freed_memory, measure

# A benchmark is a module of this package with a function `cases()`, named like what it measures.
BENCHMARKS = (
    "algorithms",
    "estimators",
    "fastsort",
    "logic_execution",
    "logic_numbers",
    "logic_stack",
    "network_sort",
    "rendering",
    "tnorms",
    "topk",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    print(f"softly {softly.__version__}, kernels: {softly.native.isa() or 'none'}, ", end="")
    print(f"torch {torch.__version__}, threads: {options.threads}")
    for name in options.names or BENCHMARKS:
        print(f"\n{name}")
        for case in importlib.import_module(f"benchmarks.{name}").cases():
            timings = measure(case)
            ours = timings.pop("softly")
            print(f"  {case.name:<58} {ours.seconds * 1e6:>10.1f} µs", end="")
            if case.flops is not None:
                rate, bound = case.flops / ours.seconds, attainable_flops()
                print(
                    f", {rate / 1e9:.1f} useful GFlop/s, {rate / bound:.0%} of a matrix product's {bound / 1e9:.0f}",
                    end="",
                )
            print(f", {case.note(ours.seconds)}" if case.note is not None else "")
            for peer, timing in timings.items():
                print(f"    {peer:<56} {timing.seconds * 1e6:>10.1f} µs {timing.ratio:>7.1f}×")


if __name__ == "__main__":
    main()
