#!/bin/sh
# Tests python/probe_states.py. Requires a Python (DDL_PYTHON) with scikit-learn and safetensors; else skipped.
python=${DDL_PYTHON:-python3}
if ! "$python" -c 'import numpy, safetensors, sklearn' >/dev/null 2>&1; then
    echo "skipped: there is no $python with numpy, safetensors and scikit-learn"
    exit 77
fi
exec "$python" "$DDL_SOURCE_DIR/tests/python/probe_states.py"
