"""Draws docs/images/renderers.png, the chapter's map of what renderers reach, and prints the table of docs/results.md.

`python docs/renderers.py RUNS` reads the runs of `softly reproduce --only shape --preset standard --out RUNS`.
"""

import sys
from pathlib import Path

from softly_lab.renderers import heat_map, kind_of
from softly_lab.report import collect


def main() -> None:
    runs = collect([Path(sys.argv[1]) / "shape" / "standard"])
    ((caption, figure),) = heat_map(runs, "IoU").items()
    path = Path(__file__).with_name("images") / "renderers.png"
    figure.savefig(path, dpi=90)
    print(f"{path.name}: {caption}")
    for run in sorted(runs, key=lambda run: -run.final["IoU"]):
        kind = kind_of(run.config).canonical()
        name = f"{kind.distribution}{', squared' * kind.squared}"
        print(f"| {name} | {kind.aggregation} | {run.final['IoU']:.3f} | 10^{run.final['exponent']:g} |")


if __name__ == "__main__":
    main()
