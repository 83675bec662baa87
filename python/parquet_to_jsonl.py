#!/usr/bin/env python3
"""Converts Parquet files to JSON lines, for `ddl data build`.

    python3 python/parquet_to_jsonl.py PATH... [--columns text,id] [--rows N] | ddl data build - --stdin-format jsonl ...
    python3 python/parquet_to_jsonl.py PATH... [--columns text,id] --out DIR [--shard I/N]

PATH is a file or a folder, which is searched for .parquet files; files are read in the order of their names. One object
per row, with the chosen columns; rows whose first column is null are left out, and counted in a message. The files are
streamed in batches of rows, so that memory does not grow with them.

On standard output: if a file cannot be read, or the process is killed, the last line is not JSON, so that a build that
reads it from a pipe fails instead of missing the rest. With --out, each Parquet file becomes a file DIR/NAME.jsonl.zst,
with the folders below PATH. A file appears when it is complete, and existing ones are kept: after an interruption, the
same command continues. --shard divides the files among N processes. Needs pyarrow.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import math
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

BATCH_ROWS = 1024


class Failure(Exception):
    """An error message for the user."""


def find_files(paths: list[str]) -> list[tuple[Path, Path]]:
    """The files, each with its name in the output folder."""
    found: list[tuple[Path, Path]] = []
    for name in paths:
        path = Path(name)
        inside = sorted(p for p in path.rglob("*.parquet") if not p.name.startswith(".")) if path.is_dir() else [path]
        if not inside:
            raise Failure(f"{path}: no .parquet file in this folder")
        if not path.exists():
            raise Failure(f"{path}: cannot open: no such file")
        base = path if path.is_dir() else path.parent
        found += [(p, p.relative_to(base).with_suffix(".jsonl.zst")) for p in inside]
    return found


def check_names(files: list[tuple[Path, Path]]) -> None:
    """No two files have the same name in the output folder."""
    first: dict[Path, Path] = {}
    for path, name in files:
        if name in first:
            raise Failure(f"{path}: its output {name} would be that of {first[name]} too: convert them into two folders")
        first[name] = path


def check_columns(file, path: Path, columns: list[str]) -> None:
    there = file.schema_arrow.names
    for column in columns:
        if column not in there:
            raise Failure(f"{path}: column '{column}': expected one of {', '.join(there)}")


def as_json(value: object) -> str:
    """A value that JSON has no type for: text without Parquet's annotation as text, dates and numbers as they print."""
    return value.decode() if isinstance(value, bytes) else str(value)


def finite(value: object) -> object:
    """The value with None for the numbers that JSON does not have: NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in value]
    return {key: finite(item) for key, item in value.items()} if isinstance(value, dict) else value


def read_lines(path: Path, columns: list[str]) -> Iterator[tuple[list[str], int]]:
    """The rows of a file as lines of JSON, in batches, each with its number of rows without a first column."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            check_columns(file, path, columns)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                rows = [row for row in batch.to_pylist() if row[columns[0]] is not None]
                dump = (json.dumps({c: finite(row[c]) for c in columns}, ensure_ascii=False, default=as_json) for row in rows)
                yield [line + "\n" for line in dump], batch.num_rows - len(rows)
    except (ArrowException, OSError, ValueError) as problem:  # ValueError: text that is not UTF-8
        raise Failure(f"{path}: cannot read: {problem}") from None


def convert_to_stdout(files: list[tuple[Path, Path]], columns: list[str], limit: int | None) -> None:
    rows = nulls = 0
    held = b""  # the end of the last line, until it is known what follows
    try:
        for path, _ in files:
            for lines, without in read_lines(path, columns):
                lines = lines if limit is None else lines[: limit - rows]
                data = held + "".join(lines).encode()
                held = data[-2:]
                sys.stdout.buffer.write(data[:-2])
                rows, nulls = rows + len(lines), nulls + without
                if rows == limit:
                    break
            if rows == limit:
                break
    except Exception:
        sys.stdout.buffer.write(held)  # the line that fails is the next one
        raise
    sys.stdout.buffer.write(held)
    sys.stdout.flush()
    report_nulls(nulls, columns[0])


def convert_to_folder(files: list[tuple[Path, Path]], columns: list[str], folder: Path) -> None:
    from pyarrow import CompressedOutputStream

    rows = nulls = kept = 0
    for path, name in files:
        target = folder / name
        if target.exists():
            kept += 1
            continue
        temporary = target.with_name(f"{target.name}.tmp-{secrets.token_hex(8)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with CompressedOutputStream(str(temporary), "zstd") as out:
                for lines, without in read_lines(path, columns):
                    out.write("".join(lines).encode())
                    rows, nulls = rows + len(lines), nulls + without
            temporary.rename(target)
        except OSError as problem:
            raise Failure(f"{temporary}: cannot write: {problem}") from None
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    report_nulls(nulls, columns[0])
    print(f"parquet_to_jsonl: {len(files) - kept} files written, {rows} rows; {kept} existing files kept", file=sys.stderr)


def select_shard(files: list[tuple[Path, Path]], shard: str | None) -> list[tuple[Path, Path]]:
    if shard is None:
        return files
    i, slash, n = shard.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal() and int(i) < int(n)):
        raise Failure(f"--shard: expected I/N with I from 0 to N - 1, such as 0/4, found {shard}")
    return files[int(i) :: int(n)]


def report_nulls(nulls: int, column: str) -> None:
    if nulls:
        print(f"parquet_to_jsonl: left out {nulls} rows without '{column}'", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Parquet file, or folder of such files")
    parser.add_argument("--columns", default="text", help="columns to write, comma-separated (default: text)")
    parser.add_argument("--rows", type=int, metavar="N", help="maximum number of rows (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write DIR/NAME.jsonl.zst for each file")
    parser.add_argument("--shard", metavar="I/N", help="with --out: convert files I, I + N, ..., from 0")
    a = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the reader has closed the pipe
    try:
        if a.out and a.rows is not None or a.shard and not a.out:
            raise Failure("expected --shard only with --out, and --rows only without --out: --out converts whole files")
        if a.rows is not None and a.rows < 0:
            raise Failure(f"--rows: expected a number of rows, found {a.rows}")
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise Failure("pyarrow is not installed: python3 -m pip install pyarrow") from None
        files = find_files(a.paths)
        if a.out:
            check_names(files)
        files = select_shard(files, a.shard)
        if a.out:
            convert_to_folder(files, a.columns.split(","), a.out)
        else:
            convert_to_stdout(files, a.columns.split(","), a.rows)
    except Exception as problem:
        if not a.out:
            print(f"parquet_to_jsonl failed: {problem}", flush=True)
        if not isinstance(problem, Failure):
            raise
        sys.exit(f"parquet_to_jsonl: {problem}")


if __name__ == "__main__":
    main()
