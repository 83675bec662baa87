#!/bin/sh
# Tests the Python package with pytest, on the program and the library of this build. Needs a Python (DDL_PYTHON, or
# python3) with venv; numpy and pytest are installed from PyPI into an environment of the test's own. Where PyPI cannot
# be reached it is skipped. Tests that need torch or pandas run if that Python has them.
set -eu
python=${DDL_PYTHON:-python3}
environment=$DDL_SCRATCH/environment
if ! "$python" -m venv --clear --system-site-packages "$environment" >"$DDL_SCRATCH/log" 2>&1; then
    echo "skipped: $python cannot make a virtual environment (package python3-venv)"
    exit 77
fi
if ! "$environment/bin/pip" install --retries 0 --timeout 10 -q numpy pytest >"$DDL_SCRATCH/log" 2>&1; then
    echo "skipped: PyPI cannot be reached"
    exit 77
fi
prefix=$DDL_SCRATCH/prefix
rm -rf "$prefix"
for component in program runtime; do
    cmake --install "$DDL_BUILD_DIR" --prefix "$prefix" --component "$component" >"$DDL_SCRATCH/log"
done
printf '#!%s\nfrom deep_delta.cli import main\nmain()\n' "$environment/bin/python" >"$environment/bin/ddl"
chmod +x "$environment/bin/ddl"
cd "$DDL_SCRATCH"
export DEEP_DELTA_PREFIX="$prefix" PYTHONPATH="$DDL_SOURCE_DIR/python" PYTHONDONTWRITEBYTECODE=1
export PATH="$environment/bin:$PATH"
if "$environment/bin/pip" install --retries 0 --timeout 10 -q mypy==2.4.1 ruff==0.17.6 >log 2>&1; then
    "$environment/bin/ruff" check --no-cache --config "$DDL_SOURCE_DIR/python/pyproject.toml" \
        "$DDL_SOURCE_DIR/python/deep_delta"
    files="-p deep_delta"
    "$environment/bin/python" -c 'import torch' 2>/dev/null ||
        files="--follow-imports=silent deep_delta/cli.py deep_delta/engine.py deep_delta/errors.py deep_delta/paths.py deep_delta/runs.py"
    # shellcheck disable=SC2086
    (cd "$DDL_SOURCE_DIR/python" &&
        "$environment/bin/mypy" --cache-dir=/dev/null --no-incremental $files >"$DDL_SCRATCH/log") ||
        { cat "$DDL_SCRATCH/log"; exit 1; }
    echo "[       OK ] ruff_and_mypy"
fi
status=0
"$environment/bin/python" -m pytest -v -p no:cacheprovider "$DDL_SOURCE_DIR/tests/python/package" >pytest.log 2>&1 ||
    status=$?
# As cmocka says it.
sed -n 's/^.*::\(.*\) PASSED.*/[       OK ] \1/p' pytest.log
[ $status -eq 0 ] || {
    cat pytest.log
    echo " $(grep -cE '^(FAILED|ERROR) ' pytest.log) FAILED TEST(S)"
    exit 1
}
