"""Fixtures: a small model, trained once, and the server of it."""
import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

SOURCE = Path(os.environ["DDL_SOURCE_DIR"])
PROGRAM = os.environ["DDL_PROGRAM"]


def ddl(*arguments):
    """Runs the program; its standard output."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run of some steps: the bias of a text is known, so that its scores differ."""
    folder = tmp_path_factory.mktemp("clients")
    ddl("data", "build", SOURCE / "data/text/tinyshakespeare.txt", "--tokenizer", SOURCE / "data/tokenizer", "--out",
        folder / "shards", "--quiet")
    ddl("train", "--model", "ddl-cc-ec", "--size", "micro", "--train-data", folder / "shards", "--tokenizer",
        SOURCE / "data/tokenizer", "--out", folder / "run", "--steps", 20, "--batch", 4, "--seq", 64, "--block-size", 512,
        "--val-every", 0, "--quiet")
    return folder / "run"


@contextlib.contextmanager
def serving(run, log, *options):
    """A server of the run, which must end with status 0; its address."""
    with log.open("w") as stream:
        process = subprocess.Popen([PROGRAM, "serve", f"run={run}", "--port", "0", "--user", "root", *options], stdout=stream,
                                   stderr=stream)
    try:
        while not (found := re.search(r"http://[0-9.:]+", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield found[0]
    finally:
        process.terminate()
        status = process.wait(timeout=60)
    assert status == 0, log.read_text()


@pytest.fixture(scope="session")
def server(run, tmp_path_factory):
    """The address of a server of the run."""
    with serving(run, tmp_path_factory.mktemp("server") / "log", "--queue", "256") as address:
        yield address
