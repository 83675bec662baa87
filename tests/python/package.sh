#!/bin/sh
# Tests the Python package with pytest, on the program and the library of this build. Needs a Python (DDL_PYTHON, or
# python3) with venv; numpy and pytest are installed from PyPI into an environment of the test's own. Where PyPI cannot
# be reached it is skipped. Tests that need torch or pandas run if that Python has them; torch.sh runs them otherwise.
set -eu
. "$DDL_SOURCE_DIR/tests/python/package_support.sh"
python=${DDL_PYTHON:-python3}
environment=$DDL_SCRATCH/environment
if ! "$python" -m venv --clear --system-site-packages "$environment" >"$DDL_SCRATCH/log" 2>&1; then
    echo "skipped: $python cannot make a virtual environment (package python3-venv)"
    exit 77
fi
keep_bytecode
if ! "$environment/bin/pip" install --no-compile --retries 0 --timeout 10 -q numpy pytest >"$DDL_SCRATCH/log" 2>&1; then
    echo "skipped: PyPI cannot be reached"
    exit 77
fi
cd "$DDL_SCRATCH"
use_package
if "$environment/bin/pip" install --no-compile --retries 0 --timeout 10 -q mypy==2.4.1 ruff==0.17.6 >log 2>&1; then
    "$environment/bin/ruff" check --no-cache --config "$DDL_SOURCE_DIR/python/pyproject.toml" \
        "$DDL_SOURCE_DIR/python/deep_delta"
    if "$environment/bin/python" -c 'import torch' 2>/dev/null; then
        check_types -p deep_delta
    else
        check_types --follow-imports=silent deep_delta/cli.py deep_delta/engine.py deep_delta/errors.py \
            deep_delta/paths.py deep_delta/runs.py deep_delta/version.py
    fi
    echo "[       OK ] ruff_and_mypy"
fi
run_pytest "$DDL_SOURCE_DIR/tests/python/package"
[ "$failed" -eq 0 ] || { echo " $failed FAILED TEST(S)"; exit 1; }
