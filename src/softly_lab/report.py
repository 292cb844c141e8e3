"""The report: runs beside the thesis' tables, with curves and pictures, on one HTML page that needs nothing else."""

import base64
import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import matplotlib
import torch

import softly
from softly_lab import experiments
from softly_lab.published import PublishedTable, Row, kinds, tables
from softly_lab.runner import Result, load, plain
from softly_lab.tour.plots import STYLE, panels, svg

MOST_PICTURES = 8  # of one experiment


def collect(paths: Iterable[Path]) -> list[Result]:
    """The finished runs in folders and below them."""
    found: dict[Path, Result] = {}
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"{path}: there is no such folder.")
        for result in sorted(path.rglob("result.json")):
            found[result.parent.resolve()] = _completed(load(result.parent))
    if not found:
        raise ValueError("there are no finished runs in these folders.")
    return list(found.values())


def _completed(run: Result) -> Result:
    """A run with the usual values of options that are newer than it, as it would go on with."""
    return replace(run, config={**plain(experiments.get(run.experiment).config()), **run.config})


def render(runs: Sequence[Result]) -> str:
    """The whole page."""
    names = list(dict.fromkeys(run.experiment for run in runs))
    with matplotlib.rc_context(STYLE):
        sections = [_section(name, [run for run in runs if run.experiment == name]) for name in names]
    template = Template(resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    minutes = sum(run.minutes for run in runs)
    return template.substitute(
        style=resources.files("softly_lab").joinpath("page.css").read_text(encoding="utf-8"),
        contents="\n".join(f'<a href="#{name}">{escape(name)}</a>' for name in names),
        sections="\n".join(sections),
        colophon=escape(
            f"{len(runs)} runs, {minutes:.1f} minutes · softly {softly.__version__} · torch {torch.__version__}"
        ),
    )


def _section(name: str, runs: Sequence[Result]) -> str:
    parts = [f"<h2>{escape(name)}</h2>"]
    matched: set[int] = set()
    for table in tables():
        groups = {row.label: [run for run in runs if table.has(row, run)] for row in table.rows}
        if any(groups.values()) or any(table.belongs_to(run) for run in runs if not table.metrics):
            parts.append(_compared(table, groups))
            matched |= {id(run) for group in groups.values() for run in group}
    others = [run for run in runs if id(run) not in matched]
    if others:
        parts.append(_listed(others))
    for number, (caption, figure) in enumerate(experiments.get(name).overview(runs).items()):
        drawing = f"<div class=drawing>{svg(figure, f'{name}-overview-{number}')}</div>"
        parts.append(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")
    parts += [_curves(name, runs), _pictures(runs)]
    return f'<section id="{escape(name)}">\n' + "\n".join(part for part in parts if part) + "\n</section>"


def _differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """The options by which configs differ."""
    names = dict.fromkeys(itertools.chain.from_iterable(options))
    return [name for name in names if len({json.dumps(one.get(name)) for one in options}) > 1]


def _named(config: Mapping[str, Any], options: Iterable[str]) -> list[str]:
    """Options of a config, each with its value."""
    return [f"{name} {'not given' if config[name] is None else config[name]}" for name in options]


def spread(values: Sequence[float], deviation: float | None = None) -> str:
    """Mean ± standard deviation, to as many digits as are worth reading."""
    mean = statistics.fmean(values)
    if len({*values}) == 1 and float(mean).is_integer() and mean >= 1000:
        return f"{mean:,.0f}"
    text = f"{mean:.2f}" if abs(mean) >= 1 else f"{mean:.3f}"
    if deviation is None and len(values) > 1:
        deviation = statistics.stdev(values)
    return text if deviation is None else f"{text} ± {deviation:.2f}"


def _quote(value: float | str) -> str:
    """A number of the thesis as it stands there."""
    return escape(value) if isinstance(value, str) else f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _measured(table: PublishedTable, row: Row, runs: Sequence[Result], metric: str) -> str:
    """One of our cells."""
    if metric not in runs[0].final:
        return ""
    if row.over:
        return spread([row.summed_up(runs, metric)])
    return spread([run.final[metric] for run in runs], table.sample(runs, metric).deviation)


def _count(row: Row, runs: Sequence[Result]) -> str:
    """Of how many runs a cell is."""
    seeds = len({run.config.get("seed") for run in runs})
    text = f"{seeds} seed{'s' * (seeds > 1)}"
    for name, values in row.over.items():
        text = f"{len({run.config[name] for run in runs})} of {len(values)} {escape(name)}, {text}"
    return text


def _compared(table: PublishedTable, groups: Mapping[str, Sequence[Result]]) -> str:
    head = "".join(f"<th>{escape(metric)}, thesis<th>ours" for metric in table.metrics)
    head += "".join(f"<th>{escape(column)}, thesis" for column in table.quoted)
    tested = "<th>p" if table.baseline else ""
    ours = "<th>runs<th>data" if table.metrics else ""
    everything = list(itertools.chain.from_iterable(groups.values()))
    lines = []
    for row in table.rows:
        thesis = [_quote(value) for value in row.published]
        measured, rest = thesis[: len(table.metrics)], "".join(f"<td>{value}" for value in thesis[len(table.metrics) :])
        if not groups[row.label]:
            empty = "quoted" if row.config is None else "not run"
            cells = "".join(f"<td>{value}<td class=none>{value and empty}" for value in measured) + rest
            lines.append(f"<tr class=none><td>{escape(row.label)}{cells}{tested and '<td>'}{ours and '<td><td>'}")
        alike = kinds(groups[row.label], without=row.over)
        options = [json.loads(key[2]) for key in alike]
        for (preset, data, _), runs in alike.items():
            label = ", ".join([row.label, *_named(runs[0].config, _differing(options))])
            found = [_measured(table, row, runs, metric) for metric in table.metrics]
            cells = "".join(f"<td>{a}<td><b>{b}</b>" for a, b in zip(measured, found, strict=True)) + rest
            if table.baseline:
                p = table.significance(runs, everything)
                cells += "<td>" if p is None else f"<td>{p:.2g}"
            lines.append(f"<tr><td>{escape(label)}{cells}<td>{_count(row, runs)}, {preset}<td>{escape(data)}")
    against = ", ".join(f"{name} {value}" for name, value in table.baseline.items())
    over = f"seeds{' or the networks of a run' * bool(table.networks)}"
    test = f" p is that of Welch's t-test of {table.metrics[0]} against {against}, over {over}." if against else ""
    title = f"<h3>{escape(table.title)}</h3><p>{escape(table.source)}; {escape(table.unit)}.{escape(test)}</p>"
    return f"{title}<div class=table><table><tr><th>{head}{tested}{ours}\n" + "\n".join(lines) + "</table></div>"


def _listed(runs: Sequence[Result]) -> str:
    """Runs that the thesis has no number for."""
    names = list(dict.fromkeys(itertools.chain.from_iterable(run.final for run in runs)))
    names = [name for name in names if name not in ("step", "minutes")]
    alike = list(kinds(runs).items())
    options = [json.loads(key[2]) for key, _ in alike]
    differing = _differing(options)
    lines = []
    for ((preset, data, _), group), chosen in zip(alike, options, strict=True):
        what = ", ".join(_named(chosen, differing)) or "as the preset has it"
        cells = "".join(
            f"<td>{spread([run.final[name] for run in group])}" if name in group[0].final else "<td>" for name in names
        )
        lines.append(f"<tr><td>{escape(what)}{cells}<td>{len(group)}, {preset}<td>{escape(data)}")
    head = "".join(f"<th>{escape(name)}" for name in names)
    return f"<div class=table><table><tr><th>options{head}<th>runs<th>data\n" + "\n".join(lines) + "</table></div>"


def _curves(name: str, runs: Sequence[Result]) -> str:
    """Every measurement against the steps, a line for each run."""
    usable = [run for run in runs if len(run.metrics) > 1]
    metrics = [m for m in (usable[0].final if usable else {}) if m not in ("step", "minutes") and not m.startswith("±")]
    if not metrics:
        return ""
    metrics = metrics[:4]
    figure, axes = panels(1, len(metrics), height=2.6, share=False)
    alike = kinds(usable)
    options = [json.loads(key[2]) for key in alike]
    differing = _differing(options)
    for number, (key, group) in enumerate(alike.items()):
        label = ", ".join(str(json.loads(key[2])[o]) for o in differing[:3])
        for run, (axis, metric) in itertools.product(group, zip(axes, metrics, strict=True)):
            points = [(line["step"], line[metric]) for line in run.metrics if metric in line]
            axis.plot(
                *zip(*points, strict=True),
                color=f"C{number % 6}",
                linestyle=("-", "--", ":")[number // 6 % 3],
                label=label if run is group[0] else None,
                alpha=0.9,
            )
    for axis, metric in zip(axes, metrics, strict=True):
        axis.set_title(metric)
        axis.set_xlabel("step")
    if differing and len(alike) <= 10:
        axes[-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    caption = "<figcaption>Every run, step by step.</figcaption>"
    return f"<figure><div class=drawing>{svg(figure, f'{name}-curves')}</div>{caption}</figure>"


def _pictures(runs: Sequence[Result]) -> str:
    found = []
    for run in runs:
        if run.folder is None:
            continue
        captions = json.loads((run.folder / "result.json").read_text())["pictures"]
        for name, caption in captions.items():
            path, alt = run.folder / "pictures" / name, escape(f"{caption} ({run.folder.name})")
            if not path.exists():
                found.append(f"<figure><figcaption>{alt}: the picture is missing.</figcaption></figure>")
                continue
            content = base64.b64encode(path.read_bytes()).decode()
            image = f'<img src="data:image/png;base64,{content}" alt="{alt}" loading="lazy">'
            found.append(f"<figure>{image}<figcaption>{alt}</figcaption></figure>")
    return "<div class=pictures>" + "\n".join(found[:MOST_PICTURES]) + "</div>" if found else ""
