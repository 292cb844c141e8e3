"""The 1,242 renderers of chapter 5, by the names of their parts, and the chapter's heat map of what they reach.

The thesis does not print the list; this is a reconstruction of it: 23 distributions, plain and with squared distances,
times 27 ways to put faces together. Some are the same under two names (`CANONICAL`), so that 966 are distinct.
"""

import itertools
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import softly
from softly.distributions import Distribution
from softly.distributions import get as distribution
from softly.tnorms import TNorm
from softly.tnorms import get as tnorm
from softly_lab.runner import Result


def _distributions() -> dict[str, Distribution]:
    plain = ("uniform", "cubic_hermite", "wigner", "gaussian", "laplace", "logistic", "hyperbolic_secant", "cauchy",
             "reciprocal", "gumbel_max", "gumbel_min")  # fmt: skip
    one_sided = {"exponential": distribution("exponential")}
    one_sided |= {f"gamma-{shape:g}": distribution("gamma", shape=shape) for shape in (0.5, 1.0, 2.0)}
    one_sided |= {"levy": distribution("levy"), "levy-shifted": distribution("levy").shifted(1.0)}
    found = {name: distribution(name) for name in plain}
    for name, base in one_sided.items():
        found |= {name: base, f"{name}-reversed": base.reversed()}
    return found


def _aggregations() -> dict[str, str | TNorm]:
    found: dict[str, str | TNorm] = {"average": "average", "maximum": tnorm("minimum")}
    found |= {name: tnorm(name) for name in ("probabilistic", "einstein")}
    for family, p in itertools.product(
        ("hamacher", "frank", "yager", "aczel_alsina", "dombi", "schweizer_sklar"), (0.5, 1.0, 2.0, 4.0)
    ):
        signed = -p if family == "schweizer_sklar" else p
        if (family, p) != ("frank", 1.0):  # its limit, the probabilistic one
            found[f"{family}{'' if signed < 0 else '-'}{signed:g}"] = tnorm(family, p=signed)
    return found


DISTRIBUTIONS = _distributions()
AGGREGATIONS = _aggregations()

# Names of what has another name already.
CANONICAL = {
    "gamma-1": "exponential",
    "gamma-1-reversed": "exponential-reversed",
    "hamacher-1": "probabilistic",
    "aczel_alsina-1": "probabilistic",
    "hamacher-2": "einstein",
    "schweizer_sklar-1": "dombi-1",
}


class Kind(NamedTuple):
    """A renderer by its options: names of `DISTRIBUTIONS` and `AGGREGATIONS`, and whether distances are squared."""

    distribution: str
    squared: bool
    aggregation: str

    def canonical(self) -> "Kind":
        """The first of all that render the same."""
        name, aggregation = self.distribution, self.aggregation
        return Kind(CANONICAL.get(name, name), self.squared, CANONICAL.get(aggregation, aggregation))

    def make(self, image_size: int, steepness: float = 100.0) -> softly.Renderer:
        """The renderer itself."""
        return softly.Renderer(
            image_size,
            distribution=DISTRIBUTIONS[self.distribution],
            squared=self.squared,
            tconorm=AGGREGATIONS[self.aggregation],
            steepness=steepness,
        )


def kinds() -> Iterator[Kind]:
    """All 1,242."""
    return itertools.starmap(Kind, itertools.product(DISTRIBUTIONS, (False, True), AGGREGATIONS))


def kind_of(options: Any) -> Kind:
    """The renderer of a config, or of the options of a run."""
    read = options.__getitem__ if isinstance(options, dict) else lambda name: getattr(options, name)
    return Kind(*(read(name) for name in Kind._fields))


def comparable(runs: Sequence[Result], searched: str = "") -> dict[str, list[Result]]:
    """Runs that differ by nothing but their renderer, their seed and the option that is searched, by what they are."""
    groups: dict[str, list[Result]] = {}
    for run in runs:
        others = {k: v for k, v in run.config.items() if k not in (*Kind._fields, "seed", searched)}
        groups.setdefault(json.dumps([run.preset, run.data, others], sort_keys=True), []).append(run)
    return {
        f"{group[0].preset}, {group[0].data}" + f", options {number}" * (len(groups) > 1): group
        for number, group in enumerate(groups.values(), 1)
    }


def heat_map(runs: Sequence[Result], metric: str, searched: str = "") -> dict[str, Figure]:
    """What renderers reach, plain on the left and squared on the right, and who is among the best tenth.

    Runs that can be compared make one map; it shows the best of the option that is searched, in the mean over seeds.
    """
    figures = {}
    for what, group in comparable(runs, searched).items():
        alike: dict[tuple[Kind, Any], list[float]] = {}
        for run in group:
            alike.setdefault((kind_of(run.config).canonical(), run.config.get(searched)), []).append(run.final[metric])
        values: dict[Kind, float] = {}
        for (kind, _), found in alike.items():
            values[kind] = max(values.get(kind, -math.inf), statistics.fmean(found))
        if len(values) > 1:
            count = f"{len(values)} of the {len({kind.canonical() for kind in kinds()})} distinct renderers"
            best = f"; the best {searched.replace('_', ' ')} of each" if searched else ""
            caption = f"{metric} of {count}, reconstructed ({what}){best}; at the margins, who is in the best tenth."
            figures[caption] = _drawn(values, metric)
    return figures


def _drawn(values: Mapping[Kind, float], metric: str) -> Figure:
    # What nobody has run has no row and no column.
    columns = [name for name in DISTRIBUTIONS if any(kind.distribution == name for kind in values)]
    rows = [name for name in AGGREGATIONS if any(kind.aggregation == name for kind in values)]
    grids = np.full((2, len(rows), len(columns)), np.nan)
    for kind, value in values.items():
        grids[int(kind.squared), rows.index(kind.aggregation), columns.index(kind.distribution)] = value
    figure = Figure(figsize=(4.5 + 0.31 * len(columns), 3.0 + 0.18 * len(rows)), layout="constrained")
    axes = figure.subplots(2, 4, width_ratios=(8, 1, 8, 1), height_ratios=(1, 8), squeeze=False)
    for side, (grid, title) in enumerate(zip(grids, ("distances", "squared distances"), strict=True)):
        above, corner, map_, beside = axes[0][2 * side], axes[0][2 * side + 1], axes[1][2 * side], axes[1][2 * side + 1]
        best = _best_tenth(grid)
        image = map_.imshow(grid, aspect="auto", vmin=np.nanmin(grids), vmax=np.nanmax(grids), cmap="viridis")
        map_.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
        map_.set_yticks(range(len(rows)), rows if side == 0 else [], fontsize=7)
        above.bar(range(len(columns)), best.sum(0), color="#888")
        above.set(xlim=(-0.5, len(columns) - 0.5), title=title, xticks=[], yticks=[0, int(best.sum(0).max())])
        beside.barh(range(len(rows)), best.sum(1), color="#888")
        beside.set(ylim=(len(rows) - 0.5, -0.5), yticks=[], xticks=[0, int(best.sum(1).max())])
        corner.axis("off")
    figure.colorbar(image, ax=axes, label=metric, shrink=0.6)
    return figure


def _best_tenth(grid: np.ndarray) -> np.ndarray:
    """Where the greatest tenth of all that is there lies; at least one."""
    there = np.isfinite(grid)
    if not there.any():
        return there
    order = np.sort(grid[there])[::-1]
    least = order[max(1, round(0.1 * len(order))) - 1]
    return there & (np.nan_to_num(grid, nan=-np.inf) >= least)
