"""The program ddl from Python: the same commands and options, results as dictionaries, errors as exceptions."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Union

from deep_delta.errors import DdlError
from deep_delta.paths import INSTALL, program

Value = Union[str, int, float, bool, "os.PathLike[str]", Sequence[Any], Mapping[Any, Any]]

REPEATED = ("stop", "stop_id", "logit_bias", "force", "contrast")  # options that are given once for each value
EXIT = {1: "failed", 2: "usage", 3: "interrupted"}
TEXT: Any = {"encoding": "utf-8", "errors": "replace"}  # samples of a model may be invalid UTF-8
POLL = 0.1  # seconds between reads of metrics.jsonl


def main() -> NoReturn:
    """The command `ddl` that the package installs: becomes the program."""
    try:
        path = program()
    except FileNotFoundError as error:
        sys.exit(f"ddl: {error}")
    if os.path.exists(sys.argv[0]) and os.path.samefile(path, sys.argv[0]):
        sys.exit(f"ddl: {path}: this is the command of the Python package, which has no program: {INSTALL}")
    os.execv(path, [str(path), *sys.argv[1:]])


def text_of(value: Any) -> str:
    """A value as the command line has it."""
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def arguments(options: dict[str, Value]) -> list[str]:
    """Options as the command line has them: dtype="bf16" is --dtype=bf16, quiet=True --quiet, verify=False
    --no-verify; the values of a sequence are joined by commas, those of REPEATED given one by one, and a dict is a
    sequence of KEY=VALUE. None is left out.
    """
    out: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        value = value.tolist() if hasattr(value, "tolist") else value  # of numpy
        value = [f"{key}={item}" for key, item in value.items()] if isinstance(value, Mapping) else value
        if value is None:
            continue
        if isinstance(value, bool):
            out.append(f"--{flag}" if value else f"--no-{flag}")
        elif name in REPEATED and isinstance(value, (list, tuple)):
            out += [f"--{flag}={text_of(item)}" for item in value]
        elif isinstance(value, (list, tuple)):
            out.append(f"--{flag}=" + ",".join(text_of(item) for item in value))
        else:
            out.append(f"--{flag}={text_of(value)}")
    return out


def failure(code: int, errors: str) -> DdlError:
    """The exception for a command that ended with `code`: its last message."""
    said = [line[len("ddl: "):] for line in errors.splitlines() if line.startswith("ddl: ")]
    text = said[-1] if said else errors.strip() or f"ddl ended with status {code}"
    return DdlError(text, EXIT.get(code, "failed"))


def run(*words: str | os.PathLike[str], **options: Value) -> Any:
    """Runs `ddl WORDS --options` and returns its --json output (JSON lines as a list), or its text for commands without --json.

    run("data", "build", "input.txt", out="data") or run("eval", "runs/a", val_data="data"). DdlError carries the
    message of a command that failed. The command's standard input is empty. Commands that are shown in a terminal (ddl train):
    train().
    """
    command = [str(program()), *[os.fspath(word) for word in words], *arguments(options)]
    done = subprocess.run([*command, "--json"], stdin=subprocess.DEVNULL, capture_output=True, **TEXT)
    if done.returncode == 2 and re.search(r"unknown option '?--json", done.stderr):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, **TEXT)
        if done.returncode == 0:
            return done.stdout
    if done.returncode != 0:
        raise failure(done.returncode, done.stderr)
    if words and os.fspath(words[0]) == "logprobs":  # a line for each token
        return [json.loads(line) for line in done.stdout.splitlines()]
    try:
        return json.loads(done.stdout)
    except ValueError:  # --help, --version
        return done.stdout


def train(recipe: str | os.PathLike[str] | None = None, *, progress: bool = True, resume: bool = False,
          overwrite: bool = False, **keys: Value) -> dict[str, Any]:
    """Trains a model with the keys of a recipe (ddl train --help), such as model="ddl-1", train_data="data",
    steps=200, out="runs/a". Returns the result: out, step, loss, val_loss, tokens, seconds, peak_memory.

    progress: a bar with the step and the loss (of tqdm, where that is installed). An interruption (Ctrl-C, or the
    stop button of a notebook) ends the run after the current step with a checkpoint; the same call with resume=True
    continues it. DdlError carries the message of a run that failed.
    """
    words = [] if recipe is None else [os.fspath(recipe)]
    options: dict[str, Value] = {"json": True, **keys}
    options.update({name: True for name, on in (("resume", resume), ("overwrite", overwrite)) if on})
    process = subprocess.Popen([str(program()), "train", *words, *arguments(options)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True, **TEXT)
    watched = Watched(process)
    try:
        for step, total, loss in watched.steps():
            if progress:
                watched.show(step, total, loss)
    except BaseException:  # an interruption, or an error in the display
        process.send_signal(signal.SIGINT)
        process.wait()
        watched.finish()
        raise
    watched.finish()
    if process.returncode != 0:
        raise failure(process.returncode, watched.errors)
    result: dict[str, Any] = json.loads(watched.output)
    return result


class Watched:
    """A running ddl train: its output and its logged steps."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.errors = self.output = ""
        self.folder: Path | None = None
        self.total = 0
        self.bar: Any = None
        self.readers = [threading.Thread(target=self.read_errors), threading.Thread(target=self.read_output)]
        for reader in self.readers:
            reader.start()

    def read_errors(self) -> None:
        """Collects standard error; the header has where the run is and how many steps it has."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line
            if line.startswith("folder    "):
                self.folder = Path(line[len("folder    "):].rstrip("\n"))
            found = re.match(r"step \d+/(\d+) ", line)
            if found:
                self.total = int(found[1])

    def read_output(self) -> None:
        """Collects standard output."""
        assert self.process.stdout is not None
        self.output = self.process.stdout.read()

    def steps(self) -> Iterator[tuple[int, int, float]]:
        """The newest logged step, the run's steps and the loss, whenever there is a new one, until the process ends."""
        at, last = 0, -1
        ended = False
        while not ended:
            time.sleep(POLL)
            ended = self.process.poll() is not None
            path = self.folder / "metrics.jsonl" if self.folder else None
            if path is None or not self.total or not path.is_file():
                continue
            with path.open() as file:
                file.seek(at)
                lines = file.read()
            complete = lines[:lines.rfind("\n") + 1]
            at += len(complete.encode())
            logged = [row for row in map(json.loads, complete.splitlines()) if "kind" not in row]
            if logged and logged[-1]["step"] > last:
                last = logged[-1]["step"]
                yield last, self.total, logged[-1]["loss"]

    def show(self, step: int, total: int, loss: float) -> None:
        """One more state of the bar."""
        if self.bar is None:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                self.bar = False
            else:
                self.bar = tqdm(total=total, unit="step")
        if self.bar is False:
            print(f"\rstep {step}/{total}  loss {loss:.4f}", end="", file=sys.stderr, flush=True)
        else:
            self.bar.update(step - self.bar.n)
            self.bar.set_postfix(loss=f"{loss:.4f}")

    def finish(self) -> None:
        """Waits for the readers and closes the bar."""
        for reader in self.readers:
            reader.join()
        if self.bar is False:
            print(file=sys.stderr)
        elif self.bar is not None:
            self.bar.close()
