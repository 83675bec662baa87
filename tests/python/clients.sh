#!/bin/sh
# Tests ddl serve with clients that others wrote: the openai package (the newest and a 1.x), lm-evaluation-harness and
# schemathesis, from PyPI in environments of the test's own. Needs a Python (DDL_PYTHON, or python3) with venv. Where PyPI
# cannot be reached it is skipped.
set -eu
. "$DDL_SOURCE_DIR/tests/python/package_support.sh"
python=${DDL_PYTHON:-python3}

pip_install() { "$environment/bin/pip" install --no-compile --retries 0 --timeout 10 -q "$@" >"$DDL_SCRATCH/log" 2>&1; }

# environment NAME PACKAGE...: sets $environment.
environment() {
    environment=$DDL_SCRATCH/$1
    shift
    if ! "$python" -m venv --clear "$environment" >"$DDL_SCRATCH/log" 2>&1; then
        echo "skipped: $python cannot make a virtual environment (package python3-venv)"
        exit 77
    fi
    keep_bytecode
    if ! pip_install uv==0.13.9; then
        echo "skipped: PyPI cannot be reached"
        exit 77
    fi
    # uv takes a quarter of the time.
    "$environment/bin/uv" pip install -q --no-cache --python "$environment/bin/python" pytest "$@" >"$DDL_SCRATCH/log" 2>&1 ||
        pip_install pytest "$@" || { cat "$DDL_SCRATCH/log"; exit 1; }
}

cd "$DDL_SCRATCH"
export OMP_NUM_THREADS=1
clients=$DDL_SOURCE_DIR/tests/python/clients
environment old "openai<2"
run_pytest "$clients/test_openai.py"
total=$failed
environment new "openai==3.57.0" "lm_eval[api]==0.4.13" "schemathesis==4.32.5"
run_pytest "$clients"
total=$((total + failed))
[ $total -eq 0 ] || { echo " $total FAILED TEST(S)"; exit 1; }
