"""The report has what the thesis published and what was run, and opens in a browser."""

import json
import re
import shutil
import subprocess

import judges
import pytest
from scipy import stats

from softly_lab import experiments, published, report, runner


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    experiment = experiments.get("sorting")
    for seed in (0, 1):
        config = experiment.configure("quick", steps=20, report=10, test_lists=100, seed=seed)
        runner.run(experiment, config, folder / f"sorting-{seed}")
    ranking = experiments.get("ranking")
    runner.run(ranking, ranking.configure("quick", epochs=2), folder / "ranking")
    return folder


def test_every_published_row_can_be_run():
    for table in published.tables():
        experiment = experiments.get(table.experiment)
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels)
        for row in table.rows:
            options = {k: tuple(v) if isinstance(v, list) else v for k, v in (row.config or {}).items() if v != ""}
            for name, values in row.over.items() or (("seed", (0,)),):
                for value in values:
                    experiment.configure("standard", **options, **{name: value})
            assert row.statistic in published.STATISTICS
            assert len(row.published) == len(table.metrics) + len(table.quoted)
            assert table.source.startswith("chapter")


def test_the_page(runs):
    found = report.collect([runs, runs / "ranking"])
    assert len(found) == 3
    page = report.render(found)
    row = next(line for line in page.splitlines() if line.startswith("<tr><td>Network, Cauchy, n = 5"))
    assert "<td>84.9<td><b>" in row
    assert "2 seeds, quick" in row
    assert "stand-in for MNIST" in row
    assert "not run" in page
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r"""(src|href)=["']?http""", page)


def test_runs_that_are_older_than_an_option_have_its_usual_value(runs, tmp_path):
    for seed in (0, 1):
        shutil.copytree(runs / f"sorting-{seed}", tmp_path / str(seed))
    path = tmp_path / "0" / "config.json"
    described = json.loads(path.read_text())
    del described["config"]["validation"]
    path.write_text(json.dumps(described))
    found = report.collect([tmp_path])
    assert len(published.kinds(found)) == 1
    assert "2 seeds, quick" in report.render(found)


def test_options_that_were_not_given_say_so():
    experiment = experiments.get("shortest-path")
    result = lambda scale: runner.Result(  # noqa: E731
        *("shortest-path", "quick", "drawn maps", runner.plain(experiment.configure("quick", scale=scale))),
        *(({"EM": 1.0, "cost match": 1.0, "step": 1},), 1.0, None),
    )
    page = report.render([result(None), result(0.5)])
    assert "scale not given" in page
    assert "scale 0.5" in page


def test_rows_and_columns_that_are_quoted_only():
    experiment = experiments.get("logic")

    def result(accuracy, **options):
        config = runner.plain(experiment.configure("standard", data="mnist", **options))
        final = {"accuracy": accuracy, "parameters": 48000, "bytes": 24000, "ns a row": 300.0, "OPs": 48000}
        return runner.Result("logic", "standard", "MNIST", config, (final,), 1.0, None)

    page = report.render([result(97.5), result(98.5, architecture="mnist")])
    rows = {line.split("<td>")[1]: line for line in page.splitlines() if line.startswith("<tr")}
    small = rows["Logic gate network, small"]
    assert "<td>97.69<td><b>97.50</b><td>48,000<td><b>48,000</b><td>23 KB<td><b>24,000</b>" in small
    assert "<td>6.3 ns<td>1 seed" in small
    assert "<b>98.50</b>" in rows["Logic gate network"]
    assert "98.50" not in small
    assert "quoted" in rows["FINN, a binary neural network"]
    assert "not run" in rows["Neural network, small"]


def test_differences_are_tested_against_their_baseline():
    table = next(table for table in published.tables() if table.baseline)
    assert table.baseline == {"method": "regular"}
    experiment = experiments.get(table.experiment)
    reached = {"regular": (93.0, 93.4, 92.8), "hessian": (94.0, 94.1, 93.9), "fisher": (94.0,)}

    def result(method, seed, accuracy):
        config = runner.plain(experiment.configure("standard", method=method, seed=seed))
        return runner.Result("classification", "standard", "MNIST", config, ({"accuracy": accuracy},), 1.0, None)

    groups = {m: [result(m, seed, a) for seed, a in enumerate(found)] for m, found in reached.items()}
    everything = [run for group in groups.values() for run in group]
    expected = stats.ttest_ind(reached["hessian"], reached["regular"], equal_var=False).pvalue
    assert table.significance(groups["hessian"], everything) == pytest.approx(expected)
    assert table.significance(groups["fisher"], everything) is None  # one seed
    assert table.significance(groups["regular"], everything) is None  # the baseline itself
    page = report.render(everything)
    assert "Welch's t-test of accuracy against method regular, over seeds." in page.replace("&#x27;", "'")
    assert f"<td>{expected:.2g}<td>3 seeds" in page


def test_rows_of_several_options_say_which():
    experiment = experiments.get("sorting")

    def result(beta, seed, reached):
        config = runner.plain(experiment.configure("standard", distribution="logistic", beta=beta, seed=seed))
        final = {"EM": reached, "EW": 90.0, "EM5": reached}
        return runner.Result("sorting", "standard", "MNIST, four digits", config, (final,), 1.0, None)

    page = report.render([result(20.0, 0, 70.0), result(20.0, 1, 72.0), result(30.0, 0, 60.0), result(30.0, 1, 62.0)])
    rows = [line for line in page.splitlines() if line.startswith("<tr><td>Network, logistic, n = 5")]
    assert len(rows) == 2
    assert "n = 5, beta 20.0<td>77.2<td><b>71.00 ± 1.41</b>" in rows[0]
    assert "n = 5, beta 30.0<td>77.2<td><b>61.00 ± 1.41</b>" in rows[1]


def test_the_chapters_tables_of_sorting_are_there():
    found = {table.title: {row.label: row for row in table.rows} for table in published.tables()}
    assert found["Relaxed bubble sort, four-digit MNIST"]["Relaxed bubble sort, n = 5"].published == [84.2, 93.0]
    row = found["The activation replacement trick, four-digit MNIST"]["Logistic with ART, bitonic, n = 32"]
    assert row.published == [2.7, 67.3, 85.4]
    assert row.config["beta"] == 30.0  # log2 n (1 + log2 n)
    row = found["The activation replacement trick, SVHN"]["Logistic with ART, odd-even, n = 8"]
    assert row.published == [35.2, 73.5, 63.9]
    assert row.config["beta"] == 16.0  # 2 n
    rows = found["Large n, four-digit MNIST"]
    assert rows["ART 0.4, n = 1024, batch 4, β = 30"].config["batch_size"] == 4
    for n in (32, 64, 128, 256, 512):
        betas = [rows[f"ART 0.4, n = {n}, batch 4, β = {beta}"].published[0] for beta in (30, 32.5, 35, 37.5, 40)]
        assert rows[f"ART 0.4, n = {n}, batch 4, best β"].published == [max(betas)]
        assert rows[f"ART 0.4, n = {n}, batch 4, worst β"].published == [min(betas)]
        assert rows[f"ART 0.4, n = {n}, batch 4, mean"].published == pytest.approx([sum(betas) / 5], abs=0.006)


def test_a_missing_picture_is_said_to_be_missing(runs, tmp_path):
    shutil.copytree(runs / "ranking", tmp_path / "ranking")
    for picture in (tmp_path / "ranking" / "pictures").iterdir():
        picture.unlink()
    page = report.render(report.collect([tmp_path]))
    assert "the picture is missing" in page
    assert "data:image/png;base64," not in page


def test_folders_without_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no finished runs"):
        report.collect([tmp_path])
    with pytest.raises(ValueError, match="no such folder"):
        report.collect([tmp_path / "none"])
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(ValueError, match=r"config.json is missing"):
        report.collect([tmp_path])


@judges.needs("chromium")
def test_a_browser_shows_it(runs, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report.render(report.collect([runs])))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = ["chromium", *options, "--enable-logging=stderr", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("<svg") == 2
    assert "Uncaught" not in shown.stderr


def test_means_and_extremes_over_an_option():
    experiment = experiments.get("sorting")
    kind = {"distribution": "logistic", "art": 0.4, "sorter": "bitonic", "n": 32, "batch_size": 4}

    def result(beta, seed, reached):
        config = runner.plain(experiment.configure("standard", **kind, beta=beta, seed=seed))
        return runner.Result(
            "sorting", "standard", "MNIST, four digits", config, ({"EM": 1.0, "EW": 50.0, "EM5": reached},), 1.0, None
        )

    reached = {30.0: (70.0, 72.0), 35.0: (74.0,), 40.0: (60.0,)}
    page = report.render([result(beta, seed, a) for beta, found in reached.items() for seed, a in enumerate(found)])
    rows = {line.split("<td>")[1]: line for line in page.splitlines() if line.startswith("<tr")}
    for what, value in (("mean", 68.33), ("best β", 74.0), ("worst β", 60.0)):
        row = rows[f"ART 0.4, n = 32, batch 4, {what}"]
        assert f"<b>{value:.2f}</b>" in row
        assert "<td>3 of 5 beta, 2 seeds, standard" in row


def test_networks_of_a_run_are_a_sample():
    experiment = experiments.get("topk")

    def result(mean, deviation, **options):
        config = runner.plain(experiment.configure("standard", **options))
        final = {"top-1": mean, "± 1": deviation, "top-5": 2 * mean, "± 5": 1.0}
        return runner.Result("topk", "standard", "CIFAR-100, a part of it, 8×8 pixels", config, (final,), 1.0, None)

    runs = [result(18.0, 0.5, loss="softmax"), result(19.0, 0.7, sorter="odd_even", p_k=(0.2,) * 5)]
    expected = stats.ttest_ind_from_stats(19.0, 0.7, 5, 18.0, 0.5, 5, equal_var=False).pvalue
    page = report.render(runs)
    rows = {line.split("<td>")[1]: line for line in page.splitlines() if line.startswith("<tr")}
    assert "<td>62<td><b>19.00 ± 0.70</b><td>86.73<td><b>38.00 ± 1.00</b>" in rows["DiffSortNets, [.2,.2,.2,.2,.2]"]
    assert f"<td>{expected:.2g}<td>1 seed, standard" in rows["DiffSortNets, [.2,.2,.2,.2,.2]"]
    assert "<td><td>1 seed, standard" in rows["Softmax"]
    assert "seeds or the networks of a run" in page
    assert "ImageNet" not in page


def test_a_table_that_is_quoted_only():
    experiment = experiments.get("topk")
    config = runner.plain(experiment.configure("standard", model="head", data="digits", loss="softmax"))
    final = {"top-1": 90.0, "± 1": 1.0, "top-5": 99.0, "± 5": 0.1}
    page = report.render([runner.Result("topk", "standard", "Embeddings of digits", config, (final,), 1.0, None)])
    assert "<td>86.06<td><b>90.00 ± 1.00</b><td>97.795<td><b>99.00 ± 0.10</b><td>39.29<td>69.63" in page
    assert "<tr class=none><td>CoAtNet-7<td>90.88<td><td>no\n" in page
    assert "CIFAR-100 from scratch" not in page
