"""deep_delta.cli: options, results, errors, interruption."""
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import deep_delta as dd
from deep_delta import cli


def test_arguments():
    assert cli.arguments(dict(dtype="bf16", quiet=True, verify=False, freeze=["a", "b"], seed=0, out=Path("x"), size=None)) == [
        "--dtype", "bf16", "--quiet", "--no-verify", "--freeze", "a,b", "--seed", "0", "--out", "x"]


def test_repeated_options():
    assert cli.arguments(dict(stop=["a", "b,c"])) == ["--stop", "a", "--stop", "b,c"]


def test_run_returns_json_lines(run, tmp_path):
    (tmp_path / "text").write_text("hello world")
    rows = cli.run("logprobs", run, tmp_path / "text")
    assert len(rows) == 2 and rows[1]["position"] == 1


def test_run_returns_json(run, shards):
    result = cli.run("eval", run, val_data=shards, max_tokens=512)
    assert isinstance(result, (dict, list))


def test_run_returns_text_of_commands_without_json():
    assert cli.run("help").startswith("usage: ddl")


def test_train_says_what_it_reached(shards, tmp_path, capfd):
    result = cli.train(model="baseline", size="micro", train_data=shards, out=tmp_path / "a", steps=3, batch=1, seq=16)
    assert result["out"] == str(tmp_path / "a") and result["step"] == 3
    assert "3/3" in capfd.readouterr().err


def test_errors_are_the_programs(tmp_path):
    with pytest.raises(dd.DdlError, match="cannot open: No such file") as caught:
        cli.train(train_data=tmp_path / "none")
    assert caught.value.status == "failed"
    with pytest.raises(dd.DdlError) as caught:
        cli.train(train_data=tmp_path, stepz=3)
    assert caught.value.status == "usage" and "steps" in str(caught.value)
    with pytest.raises(dd.DdlError):
        cli.run("eval", tmp_path / "none", val_data=tmp_path)


def test_interrupted_run_continues(shards, tmp_path):
    keys = dict(model="baseline", size="micro", train_data=shards, out=tmp_path / "a", steps=2000, batch=1, seq=16,
                log_every=1, progress=False)
    code = f"""import signal, deep_delta as dd
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background
try:
    dd.cli.train(**{ {k: str(v) if isinstance(v, Path) else v for k, v in keys.items()} !r})
except KeyboardInterrupt:
    print('stopped')
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    metrics = tmp_path / "a/metrics.jsonl"
    for _ in range(600):
        if metrics.is_file() and metrics.read_text().count("\n") > 3:
            break
        time.sleep(0.1)
    process.send_signal(2)
    assert process.communicate(timeout=120)[0] == "stopped\n"
    reached = int(dd.runs.read(tmp_path / "a").metrics["step"][-1])
    assert list((tmp_path / "a").glob(f"checkpoint-{reached}"))
    before = (tmp_path / "a/metrics.jsonl").read_text()
    result = cli.train(**{**keys, "steps": reached + 5}, resume=True)
    assert result["step"] == reached + 5 and (tmp_path / "a/metrics.jsonl").read_text().startswith(before)


def test_an_error_ends_the_run(shards, tmp_path, monkeypatch):
    """An exception of the display, such as a closed standard error."""
    processes = []

    def show(watched, step, total, loss):
        processes.append(watched.process)
        raise BrokenPipeError

    monkeypatch.setattr(cli.Watched, "show", show)
    with pytest.raises(BrokenPipeError):
        cli.train(model="baseline", size="micro", train_data=shards, out=tmp_path / "a", steps=100000, batch=1, seq=16, log_every=1)
    ended = [process.poll() is not None for process in processes]
    for process in processes:
        process.kill()
    assert ended == [True]


def test_command_of_the_package():
    version = subprocess.run(["ddl", "--version"], capture_output=True, text=True)
    assert version.returncode == 0 and dd.__version__ in version.stdout


def test_the_default_tokenizer_is_that_of_shards(shards):
    built = dd.cli.run("data", "info", shards)
    tokens = dd.cli.run("data", "info", shards, tokenizer=dd.gpt2_tokenizer())
    assert built["tokenizer_sha256"] == tokens["tokenizer_sha256"]


def test_train_in_a_thread(shards, tmp_path):
    done = []
    thread = threading.Thread(target=lambda: done.append(cli.train(
        model="baseline", size="micro", train_data=shards, out=tmp_path / "a", steps=2, batch=1, seq=16, progress=False)))
    thread.start()
    thread.join(120)
    assert done and done[0]["step"] == 2
