"""Runs functions in processes that have imported softly and the tables of the tests, and have called nothing yet."""

from __future__ import annotations

import functools
import multiprocessing
import traceback
from multiprocessing.connection import Connection
from typing import Any

TIMEOUT = 300.0


@functools.cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "torch.export", "softly", "contract", "borders"])
    return context


def run(target: Any, *arguments: Any) -> str | None:
    """What ``target(*arguments)`` raises in a process of its own, as text, or None. Both have to be picklable."""
    receiver, sender = _context().Pipe(duplex=False)
    process = _context().Process(target=_report, args=(sender, target, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(TIMEOUT):
            process.kill()
            return f"TimeoutError: no result after {TIMEOUT:.0f} s"
        return receiver.recv()
    except EOFError:
        process.join()
        return f"Crash: the process ended with {process.exitcode}"
    finally:
        process.join()
        receiver.close()


def _report(sender: Connection, target: Any, arguments: tuple[Any, ...]) -> None:
    try:
        target(*arguments)
        sender.send(None)
    except BaseException:
        sender.send(traceback.format_exc())
