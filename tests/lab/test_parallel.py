"""Runs in several processes: gradients are means over them, and runs stop and go on as those of one process do."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from softly_lab import experiments, runner
from softly_lab.files import load_state

COMMAND = (sys.executable, "-m", "softly_lab", "run")


def steps(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_time(lines):
    return [{name: value for name, value in line.items() if name != "minutes"} for line in lines]


def test_a_step_of_two_processes_is_the_mean_of_two_batches(tmp_path):
    options = ("classification", "--optimizer", "sgd", "--epochs", "1", "--batch-size", "500", "--data", "digits")
    done = subprocess.run(
        [*COMMAND, *options, "--nproc", "2", "--out", str(tmp_path / "two")], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("classification on") == 1  # one of them speaks
    assert json.loads((tmp_path / "two" / "config.json").read_text())["processes"] == 2
    experiment = experiments.get("classification")
    config = experiment.configure("quick", optimizer="sgd", epochs=1, batch_size=500)
    torch.manual_seed(runner._seed(0, -1))
    task = experiment.start(config)
    assert task.steps == 2
    loss = (task.loss(0) + task.loss(1)) / 2
    loss.backward()
    task.optimizer.step()
    found = load_state(tmp_path / "two" / "checkpoints" / "last.safetensors")
    assert found["done"] == 1
    for name, wanted in task.model.state_dict().items():
        torch.testing.assert_close(found["task"]["model"][name], wanted, atol=1e-6, rtol=1e-5)


def test_two_processes_stop_and_go_on_as_one_does(tmp_path):
    options = ("sorting", "--steps", "120", "--report", "20", "--nproc", "2", "--out")
    subprocess.run([*COMMAND, *options, str(tmp_path / "whole")], check=True, capture_output=True)
    broken = tmp_path / "broken"
    running = subprocess.Popen([*COMMAND, *options, str(broken)], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    until = time.monotonic() + 120
    while not (broken / "metrics.jsonl").exists() or not steps(broken):
        assert time.monotonic() < until
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"--resume" in said
    assert not (broken / "result.json").exists()
    subprocess.run([*COMMAND, *options, str(broken), "--resume"], check=True, capture_output=True)
    assert without_time(steps(broken)) == without_time(steps(tmp_path / "whole"))


def test_what_draws_no_batches_is_refused(tmp_path):
    done = subprocess.run(
        [*COMMAND, "pose", "--nproc", "2", "--out", str(tmp_path / "pose")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "softly: Pose draws no batches, and can't run in 2 processes."


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(("data", "list"), 0, ""), (("run", "nonsense"), 1, "nonsense"), (("tour", "--nonsense"), 2, "nonsense")],
)
def test_a_process_of_several_leaves_with_its_code_and_closes_no_interpreter(tmp_path, arguments, code, said):
    (tmp_path / "sitecustomize.py").write_text("import atexit\natexit.register(print, 'closed')\n")
    done = subprocess.run(
        [sys.executable, "-m", "softly_lab.process", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == code
    assert said in done.stderr
    assert "closed" not in done.stdout


def test_another_process_than_the_first_is_heard_where_it_fails_first(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('RANK') == '1':\n    sys.stderr.write('no room left\\n')\n    os._exit(3)\n"
    )
    done = subprocess.run(
        [*COMMAND, "sorting", "--steps", "100000", "--nproc", "2", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 3
    assert "Process 2 of 2 failed:\nno room left\n" in done.stderr
