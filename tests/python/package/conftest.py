"""Fixtures of the package's tests: a small run, trained once by the program of the package."""
import os
from pathlib import Path

import pytest

import deep_delta as dd

SOURCE = Path(os.environ["DDL_SOURCE_DIR"])
TEXT = SOURCE / "data/text/tinyshakespeare.txt"
TOKENIZER = SOURCE / "data/tokenizer"


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """A folder with training and validation shards of Shakespeare."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    dd.cli.run("data", "build", TEXT, out=folder, tokenizer=TOKENIZER, val_fraction=0.005)
    return folder


@pytest.fixture(scope="session")
def run(shards, tmp_path_factory):
    """A run of 12 steps with delta connections."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    result = dd.cli.train(model="ddl-1", size="micro", train_data=shards, tokenizer=TOKENIZER, out=folder, steps=12,
                          batch=2, seq=32, val_every=6, telemetry_every=4, progress=False)
    assert result["step"] == 12
    return folder
