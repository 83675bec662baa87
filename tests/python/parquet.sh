#!/bin/sh
# Tests python/parquet_to_jsonl.py. Requires a Python with pyarrow: DDL_PYTHON, or python3; else skipped.
python=${DDL_PYTHON:-python3}
if ! "$python" -c 'import pyarrow.parquet' >/dev/null 2>&1; then
    echo "skipped: $python has no pyarrow (set DDL_PYTHON to another interpreter)"
    exit 77
fi
exec "$python" "$DDL_SOURCE_DIR/tests/python/parquet.py"
