"""Runs in several processes: torchrun starts them, and DistributedDataParallel averages their gradients."""

import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    """All processes of a run.

    Attributes:
        rank: Which of them this one is; the first one, 0, measures and writes.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether it is so in one of the processes."""
        if self.size == 1:
            return flag
        count = torch.tensor(int(flag))
        distributed.all_reduce(count)
        return bool(count)

    def wait(self) -> None:
        """Go on when all are here."""
        if self.size > 1:
            distributed.barrier()

    def share(self, task: Any) -> None:
        """Let the gradients of a task be means over all processes."""
        if self.size == 1:
            return
        if not getattr(task, "batched", False):
            raise ValueError(f"{type(task).__name__} draws no batches, and can't run in {self.size} processes.")
        task.parallel = DistributedDataParallel(task.model)

    def check(self, task: Any) -> None:
        """Make sure that all processes have learned the same."""
        if self.size == 1:
            return
        learned = (p for group in task.optimizer.param_groups for p in group["params"])
        mine = torch.stack([p.detach().double().sum() for p in learned])
        first = mine.clone()
        distributed.broadcast(first, 0)
        if self.any(not torch.equal(mine, first)):
            raise RuntimeError("softly: the processes of a run have different weights; gradients were not averaged.")


@contextmanager
def joined() -> Iterator[World]:
    """The processes that torchrun started, or this one alone."""
    if not started():
        yield World()
        return
    distributed.init_process_group("gloo")
    world = World(distributed.get_rank(), distributed.get_world_size())
    try:
        yield world
        world.wait()  # who leaves early breaks off the connection of others
    finally:
        distributed.destroy_process_group()


def started() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def launch(processes: int, arguments: Sequence[str]) -> int:
    """Run the command `softly` in several processes on this machine, as torchrun does; the exit code.

    The first process speaks for all; another one is heard where it failed first.
    """
    with tempfile.TemporaryDirectory(prefix="softly-") as logs:
        config = LaunchConfig(
            *(1, 1, processes),
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.2,
            logs_specs=DefaultLogsSpecs(
                log_dir=logs, redirects=dict.fromkeys(range(1, processes), Std.ALL), local_ranks_filter={0}
            ),
        )
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
        try:
            elastic_launch(config, sys.executable)("-m", "softly_lab.process", *arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if rank > 0:
                said = next(Path(logs).rglob(f"{rank}/stderr.log")).read_text(errors="replace").strip()
                why = said or f"killed by signal {-failure.exitcode}"
                sys.stderr.write(f"Process {rank + 1} of {processes} failed:\n{why}\n")
            return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
        except SignalException:
            return 130
    return 0
