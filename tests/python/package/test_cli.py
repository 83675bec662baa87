"""deep_delta.cli: options, results, errors, interruption."""
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import deep_delta as dd
from deep_delta import cli, paths


def test_arguments():
    assert cli.arguments(dict(dtype="bf16", quiet=True, verify=False, freeze=["a", "b"], seed=0, out=Path("x"), size=None)) == [
        "--dtype=bf16", "--quiet", "--no-verify", "--freeze=a,b", "--seed=0", "--out=x"]
    assert cli.arguments(dict(verify=np.bool_(False), seed=np.int64(3), stop_id=np.array([1, 2]), logit_bias={5: 3.5})) == [
        "--no-verify", "--seed=3", "--stop-id=1", "--stop-id=2", "--logit-bias=5=3.5"]


def test_repeated_options():
    assert cli.arguments(dict(stop=["a", "b,c"])) == ["--stop=a", "--stop=b,c"]
    texts = " ".join(" ".join(cli.run("help", command).split()) for command in ("generate", "eval", "compare"))
    found = {name.replace("-", "_") for name in re.findall(r" --([a-z-]+) (?:(?! --).)*may be repeated", texts)}
    assert found == set(cli.REPEATED)


def test_run_returns_json_lines(run, tmp_path):
    (tmp_path / "text").write_text("hello world")
    rows = cli.run("logprobs", run, tmp_path / "text")
    assert len(rows) == 2 and rows[1]["position"] == 1
    (tmp_path / "text").write_text("a")
    assert [row["position"] for row in cli.run("logprobs", run, tmp_path / "text")] == [0]


def test_run_returns_json(run, shards):
    result = cli.run("eval", run, val_data=shards, max_tokens=512)
    assert isinstance(result, (dict, list))


def test_run_returns_text_of_commands_without_json():
    assert cli.run("help").startswith("usage: ddl")
    assert cli.run("--version").startswith("ddl ")
    assert "usage: ddl generate" in cli.run("generate", help=True)


def test_run_takes_texts_that_begin_as_options_do(run):
    options = dict(max_tokens=3, temperature=0)
    assert cli.run("generate", run, prompt="-- a", stop="--", **options)
    assert cli.run("generate", run, prompt="a", logit_bias={5: 100.0}, **options)


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


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Makes a shell script the program of the package."""
    def write(text):
        path = tmp_path / "prefix/bin/ddl"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
        monkeypatch.setenv("DEEP_DELTA_PREFIX", str(tmp_path / "prefix"))

    return write


def test_output_may_be_invalid_utf8(script):
    """Samples of a model that trains; more than a pipe holds."""
    script(r"""printf 'a\377\n' >&2
head -c 1000000 /dev/zero | tr '\0' '\377' >&2
printf '{"a": "b\377"}\n'
""")
    assert cli.train(progress=False) == {"a": "b\ufffd"}
    assert cli.run("eval") == {"a": "b\ufffd"}


def test_errors_may_be_invalid_utf8(script):
    script(r"printf 'ddl: a\377\n' >&2; exit 1")
    for command in (lambda: cli.train(progress=False), lambda: cli.run("eval")):
        with pytest.raises(dd.DdlError, match="a\ufffd"):
            command()


def command_without_program(tmp_path, **variables):
    """The command of a package without the program, as of a copy of its sources; it is the only ddl in PATH."""
    shutil.copytree(Path(dd.__file__).parent, tmp_path / "deep_delta", ignore=shutil.ignore_patterns("prefix"))
    command = tmp_path / "bin/ddl"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom deep_delta.cli import main\nmain()\n")
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "DEEP_DELTA_PREFIX"}
    done = subprocess.run(["ddl", "--version"], capture_output=True, text=True, timeout=60,
                          env={**kept, "PYTHONPATH": str(tmp_path), "PATH": f"{command.parent}:/usr/bin:/bin", **variables})
    return done.returncode, done.stderr


def test_command_without_program(tmp_path):
    """It fails; it does not start itself."""
    status, errors = command_without_program(tmp_path)
    assert status == 1 and errors.startswith(f"ddl: {tmp_path}/bin/ddl: this is the command of the Python package")
    assert "pip install" in errors and errors.count("\n") == 1


def test_command_with_a_wrong_prefix(tmp_path):
    status, errors = command_without_program(tmp_path, DEEP_DELTA_PREFIX=str(tmp_path / "none"))
    assert status == 1 and errors.startswith(f"ddl: {tmp_path}/none/bin/ddl: missing")


def test_prefix_of_an_editable_install(tmp_path, monkeypatch):
    """The package is in a folder with sources, the program in that of the distribution."""
    information = tmp_path / "deep_delta-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: deep-delta\nVersion: 0.1.0\n")
    monkeypatch.delenv("DEEP_DELTA_PREFIX", raising=False)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "sources/deep_delta/paths.py"))
    monkeypatch.syspath_prepend(tmp_path)
    assert paths.installed() == tmp_path / "deep_delta/prefix"


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
