"""Tests python/parquet_to_jsonl.py: rows, columns, limits, errors, a closed pipe, and a build from its output."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

SOURCE, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), Path(os.environ["DDL_SCRATCH"])
SCRIPT = [sys.executable, str(SOURCE / "python/parquet_to_jsonl.py")]
FOLDER = SCRATCH / "parquet"


def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    command = [*SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env={**os.environ, **(env or {})})


def rows(*arguments: object) -> list[dict]:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def content() -> None:
    found = rows(FOLDER, "--columns", "text,id,score")
    assert len(found) == 400 and list(found[0]) == ["text", "id", "score"]
    assert [r["id"] for r in found] == [f"<urn:{n}>" for n in range(400)]
    assert found[7]["text"].startswith('Document 7: the "quick" brown fox,\njumps über') and found[7]["score"] == 1.0
    assert rows(FOLDER) == [{"text": r["text"]} for r in found]
    files = sorted(FOLDER.iterdir())
    assert rows(*files) == rows(FOLDER) and rows(files[1]) == rows(FOLDER)[200:]
    assert rows(FOLDER, "--rows", 250) == rows(FOLDER)[:250] and rows(FOLDER, "--rows", 0) == []


def nulls() -> None:
    path = SCRATCH / "nulls.parquet"
    table = pyarrow.table({"text": ["a", None, "b"], "id": [None, 2, 3]})
    pyarrow.parquet.write_table(table, path)
    done = run(path, "--columns", "text,id")
    assert done.stdout == '{"text": "a", "id": null}\n{"text": "b", "id": 3}\n'
    assert done.stderr == "parquet_to_jsonl: left out 1 rows without 'text'\n"


def binary() -> None:
    """Text without Parquet's annotation, as Spark may write it; and bytes that are no text, with either type."""
    path, text, wrong = SCRATCH / "binary.parquet", "über\n".encode(), b"\xff"
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([text], pyarrow.binary())}), path)
    assert rows(path) == [{"text": "über\n"}]
    data = pyarrow.array([wrong], pyarrow.binary())
    for column in data, pyarrow.Array.from_buffers(pyarrow.string(), 1, data.buffers()):
        pyarrow.parquet.write_table(pyarrow.table({"text": column}), path)
        done = run(path)
        assert done.returncode == 1 and "binary.parquet: cannot read: 'utf-8' codec" in done.stderr, done.stderr
        assert done.stdout.startswith("parquet_to_jsonl failed: ")


def failures() -> None:
    broken, empty = SCRATCH / "broken.parquet", SCRATCH / "empty"
    broken.write_bytes(b"PAR1 this is no Parquet file")
    empty.mkdir(exist_ok=True)
    for arguments, says in [((FOLDER, "--columns", "body"), "column 'body': expected one of text, id, score"),
                            ((SCRATCH / "none.parquet",), "none.parquet: cannot open"),
                            ((broken,), "broken.parquet: cannot read: "),
                            ((empty,), "empty: no .parquet file in this folder")]:
        done = run(*arguments)
        assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert done.stdout.startswith("parquet_to_jsonl failed: ")
    hidden = SCRATCH / "without"  # a pyarrow that cannot be imported
    (hidden / "pyarrow").mkdir(parents=True, exist_ok=True)
    (hidden / "pyarrow/__init__.py").write_text("raise ImportError\n")
    done = run(FOLDER, env={"PYTHONPATH": str(hidden)})
    assert done.returncode == 1 and "pyarrow is not installed" in done.stderr and "Traceback" not in done.stderr


def numbers_without_json() -> None:
    """NaN and infinities are null; two files with one name in the output folder are refused."""
    twins = [SCRATCH / "twins" / name / "a.parquet" for name in ("en", "de")]
    for file in twins:
        file.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table({"text": ["one", "two"], "score": [math.nan, 1.5], "list": [[math.inf], [2.0]]}), file)
    done = run(twins[0], "--columns", "text,score,list")
    assert [json.loads(line, parse_constant=fail) for line in done.stdout.splitlines()] == [
        {"text": "one", "score": None, "list": [None]}, {"text": "two", "score": 1.5, "list": [2.0]}]
    for paths in (twins, [file.parent for file in twins]):
        done = run(*paths, "--out", SCRATCH / "one")
        assert done.returncode == 1 and "its output a.jsonl.zst would be that of" in done.stderr, done.stderr
    assert run(*twins).returncode == 0  # to standard output


def fail(text: str) -> None:
    raise ValueError(text)


def pipes() -> None:
    many = [str(FOLDER)] * 200  # more than a pipe holds
    writer = subprocess.Popen([*SCRIPT, *many], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout.readline()
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.wait()
    writer = subprocess.Popen([*SCRIPT, *many], stdout=subprocess.PIPE)
    data = writer.stdout.read(100000)
    writer.kill()
    data += writer.stdout.read()
    writer.wait()
    assert not data.endswith(b"}\n"), data[-100:]  # a build fails instead of missing the rest
    for last, status in [([], 0), ([str(SCRATCH / "broken.parquet")], 1)]:
        writer = subprocess.Popen([*SCRIPT, str(FOLDER), *last], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        out = SCRATCH / f"shards{status}"
        build = subprocess.run([os.environ["DDL_PROGRAM"], "data", "build", "-", "--stdin-format", "jsonl",
                                "--tokenizer", str(SOURCE / "data/tokenizer"), "--out", str(out), "--overwrite"],
                               stdin=writer.stdout, capture_output=True, text=True)
        writer.wait()
        assert build.returncode == status, build.stderr  # a failed conversion fails the build
        assert status or "400 documents" in build.stdout
        assert not status or "standard input:401: invalid JSON" in build.stderr


def build(*arguments: object) -> None:
    command = [os.environ["DDL_PROGRAM"], "data", "build", *map(str, arguments), "--tokenizer", SOURCE / "data/tokenizer"]
    subprocess.run([*command, "--val-fraction", "0.1", "--overwrite", "--quiet"], check=True)


def folders() -> None:
    """--out: one file for each, complete or absent; the shards are those of a pipe."""
    out, nested = SCRATCH / "lines", SCRATCH / "nested"
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(nested, ignore_errors=True)
    for i in (1, 0):
        done = run(FOLDER, "--out", out, "--shard", f"{i}/2")
        assert done.returncode == 0 and "1 files written, 200 rows; 0 existing files kept" in done.stderr, done.stderr
        assert len(list(out.iterdir())) == 2 - i
    names = [p.name for p in sorted(FOLDER.iterdir())]
    assert sorted(p.name for p in out.iterdir()) == [n.replace(".parquet", ".jsonl.zst") for n in names]
    before = {p: p.stat().st_mtime_ns for p in out.iterdir()}
    assert "0 files written, 0 rows; 2 existing files kept" in run(FOLDER, "--out", out).stderr
    assert before == {p: p.stat().st_mtime_ns for p in out.iterdir()}
    (SCRATCH / "lines.jsonl").write_text(run(FOLDER).stdout, encoding="utf-8")
    build(SCRATCH / "lines.jsonl", "--out", SCRATCH / "from-lines")
    for i in range(2):
        build(out, "--out", SCRATCH / "from-folder", "--shard", f"{i}/2", "--part-bytes", 1)
    for name in ("train_000000.bin", "val_000000.bin"):
        assert (SCRATCH / "from-folder" / name).read_bytes() == (SCRATCH / "from-lines" / name).read_bytes(), name
    records = [json.loads((SCRATCH / folder / "shards.json").read_text()) for folder in ("from-folder", "from-lines")]
    assert records[0].pop("build") != records[1].pop("build")  # identifies the inputs too
    assert records[0] == records[1]
    nested.mkdir()
    shutil.copytree(FOLDER, nested / "a")
    (nested / "b.parquet").write_bytes(b"PAR1 this is no Parquet file")
    done = run(nested, "--out", nested / "out")
    assert done.returncode == 1 and "b.parquet: cannot read: " in done.stderr and not done.stdout
    assert sorted(str(p.relative_to(nested / "out")) for p in (nested / "out").rglob("*.*")) == [
        "a/" + n.replace(".parquet", ".jsonl.zst") for n in names]
    for arguments, says in [(("--shard", "0/2"), "expected --shard only with --out"),
                            (("--out", out, "--rows", 3), "--rows only without --out"),
                            (("--out", out, "--shard", "2/2"), "--shard: expected I/N with I from 0 to N - 1"),
                            (("--out", FOLDER / names[0]), ": cannot write: ")]:
        done = run(FOLDER, *arguments)
        assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr, done.stderr


def main() -> None:
    subprocess.run([sys.executable, str(SOURCE / "tests/python/make_parquet.py"), str(FOLDER)], check=True)
    for test in (content, nulls, binary, failures, numbers_without_json, pipes, folders):
        test()
        print(f"[       OK ] {test.__name__}")


if __name__ == "__main__":
    main()
