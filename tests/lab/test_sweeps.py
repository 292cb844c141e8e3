"""Sweeps skip what is finished, try again what failed, and lose nothing when a worker is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from softly_lab import executors, experiments
from softly_lab.files import read_lines
from softly_lab.run_commands import _grid, place

STEPS = {"steps": [150], "report": [10], "test_lists": [100]}


def jobs(folder, **values):
    experiment = experiments.get("sorting")
    return list(
        executors.jobs(
            experiment, "quick", {**STEPS, **values}, lambda config: place(experiment, config, "quick", folder)
        )
    )


def kill_when_there_is_a_line(folder, find):
    """Kills a worker in the middle of its run."""

    def kill():
        metrics = folder / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.02)
        killed.extend(find(folder))
        for process in killed:
            os.kill(process, signal.SIGKILL)

    killed = []
    thread = threading.Thread(target=kill)
    thread.start()
    return thread, killed


def writers(folder):
    """The processes that hold the lock of a run."""
    inode = os.stat(folder / ".lock").st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {int(line[4]) for line in lines if line[5].endswith(f":{inode}")}


def test_a_terminal_shows_how_far_a_sweep_is(tmp_path):
    options = ["--grid", "steps=2", "--grid", "test_lists=10", "--seeds", "2", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "softly_lab", "sweep", "sorting", *options]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "200"}  # which rich takes for a terminal
    said = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True).stderr
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said)
    assert plain.count("✓") == 2
    assert plain.index("0/2") < plain.index("1/2") < plain.index("2/2")


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_killed_worker_loses_nothing(executor, tmp_path, monkeypatch):
    if executor == "ray":
        pytest.importorskip("ray")
        monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    todo = jobs(tmp_path, seed=[0, 1])
    thread, killed = kill_when_there_is_a_line(todo[0].folder, writers)
    results = tmp_path / "results.jsonl"
    outcomes = list(executors.sweep(iter(todo), executors.get(executor, 2), results))
    thread.join()
    assert len(killed) == 1
    assert [outcome.error for outcome in outcomes] == [None, None]
    for job in todo:
        steps = [line["step"] for line in read_lines(job.folder / "metrics.jsonl")]
        assert steps == list(range(10, 151, 10))
    assert sorted(line["options"]["seed"] for line in read_lines(results)) == [0, 1]
    # Once more: all is finished, nothing is doubled.
    before = (todo[0].folder / "result.json").stat().st_mtime_ns
    again = list(executors.sweep(iter(todo), executors.get("local", 1), results))
    assert [outcome.final for outcome in again] == [
        json.loads((j.folder / "result.json").read_text())["final"] for j in todo
    ]
    assert (todo[0].folder / "result.json").stat().st_mtime_ns == before
    assert len(read_lines(results)) == 2


def test_failures_are_reported_with_their_traceback(tmp_path):
    (job,) = jobs(tmp_path, seed=[0])
    job.folder.mkdir(parents=True)
    (job.folder / "config.json").write_text("{}")
    (outcome,) = executors.sweep(iter([job]), executors.get("local", 1), tmp_path / "results.jsonl")
    assert outcome.final is None
    assert "Traceback" in outcome.error
    assert "this is no config of a run" in outcome.error


def test_what_can_not_be_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="sorter must be one of"):
        jobs(tmp_path, sorter=["odd_even", "quicksort"])
    with pytest.raises(ValueError, match="--executor must be local or ray"):
        executors.get("slurm")


def test_two_sweeps_at_once_write_every_outcome_once(tmp_path):
    results = tmp_path / "results.jsonl"
    (job,) = jobs(tmp_path, seed=[0], steps=[2], report=[1])

    def both(jobs):
        """Another sweep of the same folder ends first."""
        for job in jobs:
            with executors.Local._start(job) as process:
                while process.poll() is None:
                    time.sleep(0.05)
            list(executors.sweep(iter([job]), executors.get("local"), results))
            yield job, None

    outcomes = list(executors.sweep(iter([job]), both, results))
    assert outcomes[0].final is not None
    assert len(read_lines(results)) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_sweep(tmp_path, how):
    command = [sys.executable, "-m", "softly_lab", "sweep", "sorting", "--grid", "steps=100000", "--out", str(tmp_path)]
    sweeping = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (found := list(tmp_path.rglob("metrics.jsonl"))) or not found[0].stat().st_size:
            assert sweeping.poll() is None
            time.sleep(0.05)
        worker = writers(found[0].parent)
        assert len(worker) == 1
        sweeping.send_signal(how)
        assert sweeping.wait(20) == (128 + how if how == signal.SIGTERM else -how)
    finally:
        sweeping.kill()
    end = time.monotonic() + 10
    while writers(found[0].parent) and time.monotonic() < end:
        time.sleep(0.05)
    assert not writers(found[0].parent)


def test_options_of_a_grid_are_given_once():
    for texts in (["n=3", "n=5"], ["n=3,3"]):
        with pytest.raises(ValueError, match="is to be given once"):
            _grid(texts)
