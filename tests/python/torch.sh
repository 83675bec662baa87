#!/bin/sh
# Tests everything in python/ that needs more than numpy: torch, transformers, lm_eval, matplotlib, pyarrow, tensorboard,
# in an environment of the test's own (torch_environment.sh). The other tests of these packages run with the Python of
# this machine (DDL_PYTHON, or python3), which in CI has none of them. Where PyPI cannot be reached it is skipped; where
# it can, no part of it is.
set -eu
. "$DDL_SOURCE_DIR/tests/python/package_support.sh"
here=$DDL_SOURCE_DIR/tests/python
package=$here/package
environment=$DDL_SCRATCH/environment
total=0
began=$(date +%s)

# part NAME STATUS: prints the seconds since the part before.
part() {
    now=$(date +%s)
    echo "$1: $((now - began)) s"
    began=$now
    [ "$2" -eq 0 ] || total=$((total + $2))
}

# script NAME: runs another test with this environment.
script() {
    mkdir -p "$DDL_SCRATCH/$1"
    status=0
    DDL_PYTHON=$environment/bin/python DDL_SCRATCH=$DDL_SCRATCH/$1 sh "$here/$1.sh" || status=1
    part "$1" $status
}

keep_bytecode
status=0
sh "$here/torch_environment.sh" "${DDL_PYTHON:-python3}" "$environment" || status=$?
[ $status -eq 0 ] || exit $status
part environment 0
cd "$DDL_SCRATCH"
# One thread: the models are small, and other tests run at the same time. No GPU: see torch_environment.sh.
export OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=""
for name in connection interchange parquet probe_states tensorboard; do
    script $name
done
use_package
check_types -p deep_delta
echo "[       OK ] mypy"
part mypy 0
run_pytest "$package/test_connection.py" "$package/test_recipes.py" "$package/test_hf.py" "$package/test_lm_eval.py" \
    "$package/test_notebook.py" "$package/test_runs.py::test_frames" "$package/test_runs.py::test_plot"
grep '^SKIPPED' pytest.log && failed=$((failed + 1))
part package "$failed"
[ $total -eq 0 ] || { echo " $total FAILED TEST(S)"; exit 1; }
