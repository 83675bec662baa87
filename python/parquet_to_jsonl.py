#!/usr/bin/env python3
"""Converts Parquet files to JSON lines on standard output, for `ddl data build - --stdin-format jsonl`.

    python3 python/parquet_to_jsonl.py PATH... [--columns text,id] [--rows N]

PATH is a file or a folder, which is searched for .parquet files; files are read in the order of their names. One object
per row, with the chosen columns; rows whose first column is null are left out, and counted in a message. The files are
streamed in batches of rows, so that memory does not grow with them. If a file cannot be read, the last line is not
JSON: a build that reads it from a pipe fails instead of missing the rest. Needs pyarrow.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

BATCH_ROWS = 1024


class Failure(Exception):
    """An error message for the user."""


def find_files(paths: list[str]) -> list[Path]:
    found: list[Path] = []
    for name in paths:
        path = Path(name)
        inside = sorted(p for p in path.rglob("*.parquet") if not p.name.startswith(".")) if path.is_dir() else [path]
        if not inside:
            raise Failure(f"{path}: no .parquet file in this folder")
        if not path.exists():
            raise Failure(f"{path}: cannot open: no such file")
        found += inside
    return found


def check_columns(file, path: Path, columns: list[str]) -> None:
    there = file.schema_arrow.names
    for column in columns:
        if column not in there:
            raise Failure(f"{path}: column '{column}': expected one of {', '.join(there)}")


def convert(paths: list[str], columns: list[str], limit: int | None) -> None:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise Failure("pyarrow is not installed: python3 -m pip install pyarrow") from None
    out, rows, nulls = sys.stdout.buffer, 0, 0
    for path in find_files(paths):
        try:
            with ParquetFile(path) as file:
                check_columns(file, path, columns)
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                    for row in batch.to_pylist():
                        if row[columns[0]] is None:
                            nulls += 1
                            continue
                        if rows == limit:
                            return report_nulls(nulls, columns[0])
                        line = json.dumps({c: row[c] for c in columns}, ensure_ascii=False, default=str)
                        out.write(line.encode() + b"\n")
                        rows += 1
        except (ArrowException, OSError) as problem:
            raise Failure(f"{path}: cannot read: {problem}") from None
    report_nulls(nulls, columns[0])


def report_nulls(nulls: int, column: str) -> None:
    if nulls:
        print(f"parquet_to_jsonl: left out {nulls} rows without '{column}'", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Parquet file, or folder of such files")
    parser.add_argument("--columns", default="text", help="columns to write, comma-separated (default: text)")
    parser.add_argument("--rows", type=int, metavar="N", help="maximum number of rows (default: all)")
    a = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the reader has closed the pipe
    try:
        convert(a.paths, a.columns.split(","), a.rows)
        sys.stdout.flush()
    except Failure as problem:
        print(f"parquet_to_jsonl failed: {problem}", flush=True)
        sys.exit(f"parquet_to_jsonl: {problem}")


if __name__ == "__main__":
    main()
