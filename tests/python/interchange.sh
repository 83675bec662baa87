#!/bin/sh
# Interchange with PyTorch, both ways. Needs a Python with torch: DDL_PYTHON, or python3; skipped where it has none.
python=${DDL_PYTHON:-python3}
if ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "skipped: $python has no torch (DDL_PYTHON names another)"
    exit 77
fi
exec "$python" "$DDL_SOURCE_DIR/tests/python/interchange.py"
