# shellcheck shell=sh
# For tests in shell: `check NAME COMMAND...` runs COMMAND in a subshell and tells what came of it as cmocka does, which
# ./dev test counts; `check_full` does so except in a sample; `skip NAME WHY` tells what cannot be tried here; `finish` ends
# the test.
failures=0

# Whether a sample is tested: DDL_TEST_SAMPLE=1, as in ./dev test.
is_sample() { [ "${DDL_TEST_SAMPLE:-}" = 1 ]; }

check() {
    name=$1
    shift
    echo "[ RUN      ] $name"
    # Not as an if's condition, in which the shell would let a failing command pass.
    set +e
    (set -e; "$@")
    status=$?
    set -e
    if [ $status -eq 0 ]; then
        echo "[       OK ] $name"
    else
        echo "[  FAILED  ] $name"
        failures=$((failures + 1))
    fi
}

skip() { echo "[  SKIPPED ] $1: $2"; }

check_full() { is_sample || check "$@"; }

# fail WORD...: prints the words and ends a check.
fail() {
    echo "$*"
    exit 1
}

finish() {
    [ $failures -eq 0 ] || { echo "$failures FAILED TEST(S)"; exit 1; }
    exit 0
}
