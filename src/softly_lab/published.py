"""The tables of the thesis, and which runs their rows are compared with."""

import json
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

from scipy import stats

from softly_lab.runner import Result

STATISTICS: dict[str, Callable[[list[float]], float]] = {"mean": statistics.fmean, "best": max, "worst": min}


class Sample(NamedTuple):
    """What is known of numbers measured alike; without a deviation there is one of them."""

    mean: float
    deviation: float | None
    size: int


def welch(one: Sample, other: Sample) -> float | None:
    """The p-value of Welch's t-test that two means are the same; None if one has no deviation."""
    if one.deviation is None or other.deviation is None:
        return None
    if one.deviation == other.deviation == 0:
        return float(one.mean == other.mean)
    return float(stats.ttest_ind_from_stats(*one, *other, equal_var=False).pvalue)


@dataclass(frozen=True)
class Row:
    """A row of the thesis: what it is called, its numbers, or texts, in the order of columns, and which runs are alike.

    Without a config it is quoted only: softly has no such runs. In a config, an empty text is an option not given.

    Attributes:
        label, published, config: As above.
        over: An option and its values, whose runs are summed up: means over seeds first.
        statistic: "mean", "best" or "worst" of them, for measurements that are to be high.
    """

    label: str
    published: Sequence[float | str]
    config: Mapping[str, Any] | None = None
    over: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    statistic: str = "mean"

    def summed_up(self, runs: Sequence[Result], metric: str) -> float:
        """The statistic of what runs measured, over the values of an option."""
        (option,) = self.over
        groups = defaultdict(list)
        for run in runs:
            groups[run.config[option]].append(run.final[metric])
        return STATISTICS[self.statistic]([statistics.fmean(group) for group in groups.values()])


@dataclass(frozen=True)
class PublishedTable:
    """A table of the thesis.

    Attributes:
        title, source: What it shows, and where it stands.
        experiment: Whose runs it is compared with.
        data: A part of the name of their data.
        metrics: Names of what is measured.
        quoted: Columns that are the thesis' alone, behind those of the metrics.
        unit: In which unit.
        baseline: The options of what the others are tested against, by Welch's t-test over seeds.
        ignoring: Options in which that may differ, since it has no use for them.
        deviations: Where a run is of many networks: the names of the deviations of its metrics.
        networks: And the option that tells how many.
    """

    title: str
    source: str
    experiment: str
    metrics: Sequence[str]
    rows: Sequence[Row]
    data: str = ""
    unit: str = ""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    ignoring: Sequence[str] = ()
    quoted: Sequence[str] = ()
    deviations: Sequence[str] = ()
    networks: str = ""

    def belongs_to(self, run: Result) -> bool:
        """Whether a run is of the table's experiment and data."""
        return run.experiment == self.experiment and self.data in run.data

    def has(self, row: Row, run: Result) -> bool:
        """Whether a run is of a row's kind."""
        if row.config is None or not self.belongs_to(run):
            return False
        if any(run.config.get(name) not in values for name, values in row.over.items()):
            return False
        return all(run.config.get(name) == (None if value == "" else value) for name, value in row.config.items())

    def sample(self, runs: Sequence[Result], metric: str) -> Sample:
        """What runs that differ by their seed measured: over seeds, or over the networks of a single run."""
        values = [run.final[metric] for run in runs]
        if len(values) > 1:
            return Sample(statistics.fmean(values), statistics.stdev(values), len(values))
        count = runs[0].config[self.networks] if self.deviations else 1
        if count == 1:
            return Sample(values[0], None, 1)
        return Sample(values[0], runs[0].final[self.deviations[list(self.metrics).index(metric)]], count)

    def significance(self, runs: Sequence[Result], others: Iterable[Result]) -> float | None:
        """The p-value of the first metric of runs and those of their baseline among others; None if unknown."""
        ignored = dict.fromkeys(("seed", *self.ignoring))
        wanted = {**runs[0].config, **self.baseline, **ignored}
        same = [
            run
            for run in others
            if (run.preset, run.data) == (runs[0].preset, runs[0].data) and {**run.config, **ignored} == wanted
        ]
        if not self.baseline or not same or runs[0] in same:
            return None
        ours, theirs = (self.sample(group, self.metrics[0]) for group in (runs, same))
        return welch(ours, theirs)


def tables() -> list[PublishedTable]:
    """All that the thesis published and softly can run."""
    found = []
    for path in sorted(resources.files("softly_lab.tables").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".toml"):
            for table in tomllib.loads(path.read_text(encoding="utf-8"))["table"]:
                rows = [Row(**row) for row in table.pop("row")]
                found.append(PublishedTable(**table, rows=rows))
    return found


def kinds(runs: Iterable[Result], without: Collection[str] = ()) -> dict[tuple[str, str, str], list[Result]]:
    """Runs that differ by nothing but their seed, and options not looked at: by preset, data and the other options."""
    groups = defaultdict(list)
    for run in runs:
        options = {name: value for name, value in run.config.items() if name != "seed" and name not in without}
        groups[run.preset, run.data, json.dumps(options, sort_keys=True)].append(run)
    return dict(groups)
