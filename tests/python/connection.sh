#!/bin/sh
# Tests python/ddl_connection.py. Requires a Python with torch: DDL_PYTHON, or python3; else skipped.
python=${DDL_PYTHON:-python3}
if ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "skipped: $python has no torch (set DDL_PYTHON to another interpreter)"
    exit 77
fi
exec "$python" "$DDL_SOURCE_DIR/tests/python/connection.py"
