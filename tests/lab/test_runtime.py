"""What is timed beside softly calculates the same, and runs go on where they stopped."""

import pytest
import torch

from softly_lab import experiments, report, runner
from softly_lab.experiments import runtime

EXPERIMENT = experiments.get("runtime")


@pytest.mark.parametrize("sorter", runtime.SORTERS)
def test_all_implementations_agree(sorter):
    config = EXPERIMENT.configure("quick", sorter=sorter, n=8)
    functions = runtime.implementations(config)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    wanted = functions.pop("softly")(x)
    if sorter in ("odd_even", "bitonic"):
        assert set(functions) == {"torch", "diffsort"}
    for name, function in functions.items():
        found = function(x)
        if name == "diffsort":
            found = found.transpose(-2, -1)  # its matrices are for vectors that stand in front of them
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_runs_are_timed_drawn_and_go_on(tmp_path):
    config = EXPERIMENT.configure("quick", sorter="bitonic", n=16)

    def stop(step, steps, last):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(EXPERIMENT, config, tmp_path / "run", watch=stop)
    result = runner.run(EXPERIMENT, config, tmp_path / "run", resume=True)
    assert [line["step"] for line in result.metrics] == [1, 2, 3]
    assert result.final["layers"] == 10
    times = [line["µs a list"] for line in result.metrics]
    assert times == sorted(times, reverse=True)
    assert min(times) > 0
    assert result.final["torch ×"] == pytest.approx(result.final["torch"] / result.final["µs a list"])
    assert 16 * 16 * 4 <= result.final["bytes a list"] < 100_000
    assert (tmp_path / "run" / "pictures" / "0.png").exists()


def test_a_report_shows_published_times_and_curves(tmp_path):
    for n in (4, 16):
        runner.run(EXPERIMENT, EXPERIMENT.configure("quick", n=n, rounds=1), tmp_path / str(n))
    page = report.render(report.collect([tmp_path / "4", tmp_path / "16"]))
    assert "Runtime of sorting networks" in page
    assert "against the length of lists" in page
