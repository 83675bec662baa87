#!/bin/sh
# The plots of docs/performance.md agree with its tables. Requires DDL_PYTHON, or python3; else skipped.
python=${DDL_PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
    echo "skipped: there is no $python, or it is older than 3.9"
    exit 77
fi
exec "$python" "$DDL_SOURCE_DIR/bench/plots.py" --check
