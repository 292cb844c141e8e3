"""One file per experiment: a frozen config, a task that works in steps, and `EXPERIMENT`, which has both."""

import importlib

from softly_lab.runner import Experiment

NAMES = (
    "shortest-path",
    "silhouette",
    "levenshtein",
    "sorting",
    "runtime",
    "topk",
    "logic",
    "shape",
    "pose",
    "reconstruction",
    "classification",
    "ranking",
)


def get(name: str) -> Experiment:
    """The experiment of a name."""
    if name not in NAMES:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}.")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment
