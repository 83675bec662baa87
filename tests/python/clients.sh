#!/bin/sh
# Tests ddl serve with clients that others wrote: the openai package (the newest and a 1.x), lm-evaluation-harness and
# schemathesis, from PyPI in environments of the test's own. Needs a Python (DDL_PYTHON, or python3) with venv. Where PyPI
# cannot be reached it is skipped.
set -eu
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
    if ! pip_install uv==0.13.9; then
        echo "skipped: PyPI cannot be reached"
        exit 77
    fi
    # uv takes a quarter of the time.
    "$environment/bin/uv" pip install -q --no-cache --python "$environment/bin/python" pytest "$@" >"$DDL_SCRATCH/log" 2>&1 ||
        pip_install pytest "$@" || { cat "$DDL_SCRATCH/log"; exit 1; }
}

# tests FILE...: with the environment; as cmocka says it.
failed=0
tests() {
    status=0
    PYTHONPYCACHEPREFIX=$environment/bytecode "$environment/bin/python" -m pytest -v -p no:cacheprovider "$@" >pytest.log 2>&1 || status=$?
    sed -n 's/^.*::\(.*\) PASSED.*/[       OK ] \1/p' pytest.log
    [ $status -eq 0 ] && return
    cat pytest.log
    failed=$((failed + 1))
}

cd "$DDL_SCRATCH"
export OMP_NUM_THREADS=1
clients=$DDL_SOURCE_DIR/tests/python/clients
environment old "openai<2"
tests "$clients/test_openai.py"
environment new "openai==3.57.0" "lm_eval[api]==0.4.13" "schemathesis==4.32.5"
tests "$clients"
[ $failed -eq 0 ] || { echo " $failed FAILED TEST(S)"; exit 1; }
