# shellcheck shell=sh
# For the tests of the Python package and its clients; sourced. $environment is a virtual environment with pytest.

# Python keeps what it compiles, in $environment and not in the source tree: to compile torch takes three times as long as to
# read it.
keep_bytecode() {
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX="$environment/bytecode"
}

# Makes the package, with the program and the library of this build, available in $environment.
use_package() {
    prefix=$DDL_SCRATCH/prefix
    rm -rf "$prefix"
    for component in program runtime; do
        cmake --install "$DDL_BUILD_DIR" --prefix "$prefix" --component "$component" >"$DDL_SCRATCH/log"
    done
    printf '#!%s\nfrom deep_delta.cli import main\nmain()\n' "$environment/bin/python" >"$environment/bin/ddl"
    chmod +x "$environment/bin/ddl"
    export DEEP_DELTA_PREFIX="$prefix" PYTHONPATH="$DDL_SOURCE_DIR/python" PATH="$environment/bin:$PATH"
}

# check_types FILE...: mypy on these files of the package, or "-p deep_delta" for all.
check_types() {
    (cd "$DDL_SOURCE_DIR/python" &&
        "$environment/bin/mypy" --cache-dir=/dev/null --no-incremental "$@" >"$DDL_SCRATCH/log" 2>&1) ||
        { cat "$DDL_SCRATCH/log"; exit 1; }
}

# run_pytest ARGUMENT...: prints the tests that passed as cmocka does, and everything if one failed. Sets $failed to the
# number of tests that failed. The log is pytest.log.
run_pytest() {
    status=0
    "$environment/bin/python" -m pytest -v -rs -p no:cacheprovider "$@" >pytest.log 2>&1 || status=$?
    sed -n 's/^.*::\(.*\) PASSED.*/[       OK ] \1/p' pytest.log
    failed=0
    [ $status -eq 0 ] && return
    cat pytest.log
    failed=$(grep -cE '^(FAILED|ERROR) ' pytest.log) || failed=1
}
