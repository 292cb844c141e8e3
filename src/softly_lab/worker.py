"""One run of a sweep: `python -m softly_lab.worker EXPERIMENT PRESET OPTIONS FOLDER`, options as JSON.

It stops when its standard input ends, which is when the sweep does, however that ended.
"""

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import torch


def work(name: str, preset: str, options: str, folder: str) -> None:
    """Run an experiment in a folder, or go on with what is there."""
    from softly_lab import experiments
    from softly_lab.runner import run

    torch.set_num_threads(1)
    experiment = experiments.get(name)
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(options).items()}
    run(experiment, experiment.configure(preset, **given), Path(folder), preset=preset, resume=True)


def _stop_with_the_sweep() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_the_sweep, daemon=True).start()
    try:
        work(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
