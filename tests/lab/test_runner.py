"""Runs of experiments: the same by seed, whole at any moment, and never the worse for being killed."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from softly_lab import experiments
from softly_lab.files import Lines, load_state, read_lines, save_state, write
from softly_lab.runner import Experiment, Task, load, option, run


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = option(10, "Steps.", least=1)
    kind: str = option("walk", "What it does.", choices=("walk", "fail"))
    seed: int = option(0, "Seed.")


class Walk(Task):
    """A random walk with momentum, whose end depends on every step."""

    data, report = "nothing", 3

    def __init__(self, config):
        self.steps, self.kind = config.steps, config.kind
        self.place = torch.nn.Parameter(torch.randn(2))
        self.optimizer = torch.optim.Adam([self.place], 0.1)

    def step(self, number):
        if self.kind == "fail" and number == 5:
            raise RuntimeError("no more")
        self.optimizer.zero_grad()
        (self.place * torch.randn(2)).sum().backward()
        self.optimizer.step()

    def measure(self):
        return {"x": self.place[0].item(), "y": self.place[1].item()}

    def state(self):
        return {"place": self.place.detach(), "optimizer": self.optimizer.state_dict()}

    def load(self, state):
        self.place.data.copy_(state["place"])
        self.optimizer.load_state_dict(state["optimizer"])


WALK = Experiment("walk", "Walk.", 1, Config, Walk, {"quick": {}})


def without_minutes(lines):
    return [{k: v for k, v in line.items() if k != "minutes"} for line in lines]


def test_a_run_and_its_folder(tmp_path):
    config = WALK.configure("quick", steps=10)
    result = run(WALK, config, tmp_path / "a")
    assert [line["step"] for line in result.metrics] == [3, 6, 9, 10]
    assert without_minutes(run(WALK, config).metrics) == without_minutes(result.metrics)
    assert run(WALK, dataclasses.replace(config, seed=1)).final["x"] != result.final["x"]
    described = json.loads((tmp_path / "a" / "config.json").read_text())
    assert described["config"] == {"steps": 10, "kind": "walk", "seed": 0}
    assert {"softly", "torch", "python"} <= described["versions"].keys()
    assert load(tmp_path / "a").metrics == result.metrics == tuple(read_lines(tmp_path / "a" / "metrics.jsonl"))


def test_resuming(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError, match="no more"):
        run(WALK, WALK.configure("quick", kind="fail"), folder)
    with pytest.raises(ValueError, match="--resume"):
        run(WALK, WALK.configure("quick", kind="fail"), folder)
    with pytest.raises(ValueError, match=r"other options .*kind 'fail', not 'walk'"):
        run(WALK, WALK.configure("quick"), folder, resume=True)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("fail", "walk"))
    result = run(WALK, WALK.configure("quick"), folder, resume=True)
    whole = run(WALK, WALK.configure("quick"))
    assert without_minutes(result.metrics) == without_minutes(whole.metrics)
    assert run(WALK, WALK.configure("quick"), folder, resume=True) == load(folder)


def test_runs_that_are_older_than_an_option_had_its_usual_value(tmp_path):
    path = tmp_path / "config.json"
    run(WALK, WALK.configure("quick"), tmp_path)
    described = json.loads(path.read_text())
    del described["config"]["kind"]
    path.write_text(json.dumps(described))
    assert run(WALK, WALK.configure("quick"), tmp_path, resume=True).final["step"] == 10
    with pytest.raises(ValueError, match=r"other options \(kind 'walk', not 'fail'\)"):
        run(WALK, WALK.configure("quick", kind="fail"), tmp_path, resume=True)
    described["config"]["pace"] = 3
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match=r"other options \(pace 3, not None\)"):
        run(WALK, WALK.configure("quick"), tmp_path, resume=True)


def test_a_lost_checkpoint_doubles_no_line(tmp_path):
    folder = tmp_path / "run"
    whole = run(WALK, WALK.configure("quick"), folder)
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "last.safetensors").unlink()
    again = run(WALK, WALK.configure("quick"), folder, resume=True)
    assert without_minutes(again.metrics) == without_minutes(whole.metrics)
    assert [line["step"] for line in read_lines(folder / "metrics.jsonl")] == [3, 6, 9, 10]


def test_damaged_runs_are_refused_with_their_reason(tmp_path):
    folder = tmp_path / "run"
    run(WALK, WALK.configure("quick"), folder)
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    lines, checkpoint = folder / "metrics.jsonl", folder / "checkpoints" / "last.safetensors"
    foreign = tmp_path / "foreign.safetensors"
    save_state(foreign, {"task": {"place": torch.zeros(3), "optimizer": {}}, "done": 5, "minutes": 0.0, "line": None})
    for path, content, reason in (
        (lines, b"", "metrics.jsonl is empty"),
        (lines, b"garbage\n", r"metrics.jsonl: line 1 is damaged"),
        (lines, b"[1]\n", r"metrics.jsonl: line 1 is damaged"),
        (lines, b'{"step": "x"}\n', "step is 'x', which is no number"),
        (folder / "config.json", b"\xff", "this is no"),
        (folder / "result.json", b'{"data": "", "minutes": "x", "final": {}, "pictures": {}}', "this is no run"),
        (folder / "result.json", b'{"data": "", "minutes": 1, "final": {}}', "this is no run: 'pictures'"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            load(folder)
        path.write_bytes(kept[path])
    (folder / "result.json").unlink()
    for path, content, reason in (
        (folder / "config.json", b"\xff", r"config.json: this is no config of a run"),
        (checkpoint, kept[checkpoint][:200], "this is no checkpoint"),
        (checkpoint, foreign.read_bytes(), "this is no checkpoint of this run"),
        (lines, b"[1]\n", "line 1 is damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            run(WALK, WALK.configure("quick"), folder, resume=True)
        path.write_bytes(kept[path])


def test_a_run_whose_options_are_refused_leaves_its_folder_free(tmp_path):
    def refuse(config):
        if config.steps == 7:
            raise ValueError("not seven")
        return Walk(config)

    picky = dataclasses.replace(WALK, start=refuse)
    with pytest.raises(ValueError, match="not seven"):
        run(picky, picky.configure("quick", steps=7), tmp_path / "run")
    assert run(picky, picky.configure("quick", steps=8), tmp_path / "run").final["step"] == 8


def test_numbers_of_a_config_are_finite():
    experiment = experiments.get("sorting")
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="sorting: learning_rate must be finite"):
            experiment.configure("quick", learning_rate=value)


def test_one_process_at_a_time(tmp_path):
    import fcntl

    tmp_path.joinpath("run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process"):
            run(WALK, WALK.configure("quick"), tmp_path / "run")


def test_what_a_config_can_not_be():
    for options, message in (
        ({"steps": 0}, "walk: steps must be at least 1, got 0"),
        ({"kind": "run"}, "walk: kind must be one of walk, fail, got 'run'"),
        ({"pace": 1}, "walk: there is no option 'pace'; there are steps, kind, seed"),
    ):
        with pytest.raises(ValueError, match=message):
            WALK.configure("quick", **options)
    with pytest.raises(ValueError, match="preset must be one of quick, got 'slow'"):
        WALK.configure("slow")


KILLED = """
    import os, random, signal, sys, time
    from pathlib import Path
    import torch
    sys.path.insert(0, sys.argv[2])
    from test_runner import WALK, Walk
    from softly_lab.runner import run

    torch.set_num_threads(1)
    Walk.report = 5
    folder, kills = Path(sys.argv[1]), 0
    config = WALK.configure("quick", steps=1000)
    while True:
        child = os.fork()
        if child == 0:
            run(WALK, config, folder, resume=True)
            os._exit(0)
        known = (folder / "metrics.jsonl").stat().st_size if kills else 0
        while kills < 25:  # after its first line, at a random moment
            metrics = folder / "metrics.jsonl"
            if (metrics.exists() and metrics.stat().st_size > known) or os.waitpid(child, os.WNOHANG)[0]:
                break
        if kills < 25:
            time.sleep(random.random() * 0.02)
            os.kill(child, signal.SIGKILL)
            kills += 1
        _, status = os.waitpid(child, 0)
        content = (folder / "metrics.jsonl").read_bytes()
        assert content.endswith(b"\\n"), content[-100:]
        if status == 0:
            break
    print(kills)
"""


def test_killed_many_times_at_random_moments(tmp_path):
    folder = tmp_path / "run"
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(folder), os.path.dirname(__file__)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20
    Walk.report, before = 5, Walk.report
    try:
        whole = run(WALK, WALK.configure("quick", steps=1000))
    finally:
        Walk.report = before
    assert without_minutes(read_lines(folder / "metrics.jsonl")) == without_minutes(whole.metrics)


def test_ctrl_c_stops_after_the_step_and_says_how_to_go_on(tmp_path):
    command = [
        sys.executable,
        "-m",
        "softly_lab",
        "run",
        "sorting",
        "--steps",
        "100000",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    assert (tmp_path / "run" / "checkpoints" / "last.safetensors").exists()


def test_files_and_lines(tmp_path):
    path = write(tmp_path / "deep" / "a.txt", "old")
    with pytest.raises(TypeError):
        write(path, 3)
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    torn = tmp_path / "lines.jsonl"
    torn.write_bytes(b'{"step": 1}\n{"st')
    assert read_lines(torn) == [{"step": 1}]
    lines = Lines(torn)
    lines.append({"step": 2})
    assert torn.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_states(tmp_path):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    state = {"o": optimizer.state_dict(), "m": model.state_dict(), 3: (1, [None, True, "x", math.pi]), "e": {}}
    save_state(tmp_path / "s", state)
    loaded = load_state(tmp_path / "s")
    torch.testing.assert_close(loaded["m"], dict(state["m"]))
    assert loaded[3] == state[3]
    again = torch.optim.AdamW(model.parameters())
    again.load_state_dict(loaded["o"])
    torch.testing.assert_close(again.state_dict(), optimizer.state_dict())
    with pytest.raises(TypeError, match="a set can't be part of a checkpoint"):
        save_state(tmp_path / "t", {"a": {1}})
    (tmp_path / "s").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="this is no checkpoint"):
        load_state(tmp_path / "s")


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_experiment_in_a_few_steps(name, tmp_path):
    """Runs, is the same by seed, and goes on after being interrupted as if it had not been."""
    experiment = experiments.get(name)
    assert set(experiment.presets) == {"quick", "standard", "full"}
    for preset in experiment.presets:
        experiment.configure(preset)
