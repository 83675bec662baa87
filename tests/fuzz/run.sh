#!/bin/sh
# run.sh [--test] SOURCE BUILD SECONDS TARGET...: runs fuzz targets and prints a table of results. New inputs are kept in
# BUILD/fuzz/<target>/corpus, crashing inputs in BUILD/fuzz/<target>/. With --test, prints results in cmocka's format.
set -u
style=table
seed=0 # libFuzzer chooses one
if [ "$1" = --test ]; then
    style="test"
    seed=1 # reproducible
    shift
fi
source=$1 build=$2 seconds=$3
shift 3

# An endless loop is detected as a timeout.
limits="-rss_limit_mb=1536 -timeout=20"

# The library reads files by path: keep them in memory for speed.
scratch_parent=${TMPDIR:-/tmp}
[ -d /dev/shm ] && [ -w /dev/shm ] && scratch_parent=/dev/shm
scratch=$(mktemp -d "$scratch_parent/ddl-fuzz-run-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

stat_of() { sed -n "s/^stat::$1: *//p" "$2" | tail -n 1; }
coverage_of() { sed -n "s/^#.*$1.* cov: \([0-9]*\) .*/\1/p" "$2" | tail -n 1; }

# Prints the number of crashes, leaks, timeouts and excessive allocations in the target's folder.
findings() { find "$1" -maxdepth 1 -type f ! -name log | wc -l; }

run() {
    what=$1
    home=$build/fuzz/$what
    mkdir -p "$home/corpus"
    before=$(findings "$home")
    case $what in
    config | model | checkpoint | verify | safetensors*) dictionary=$source/tests/fuzz/tensors.dict ;;
    *) dictionary=$source/tests/fuzz/$what.dict ;;
    esac
    # An unchecked size from a file is detected as an allocation beyond this limit. libzstd reserves the window that a
    # frame declares, of 2 GiB at most, and writes only to what the frame unpacks to.
    case $what in
    zstd) most_mb=2112 ;;
    *) most_mb=192 ;;
    esac
    set -- "-seed=$seed" "-malloc_limit_mb=$most_mb"
    [ ! -f "$dictionary" ] || set -- "$@" "-dict=$dictionary"
    for kept in corpus regressions; do
        [ ! -d "$source/tests/fuzz/$kept/$what" ] || set -- "$@" "$source/tests/fuzz/$kept/$what"
    done
    status=0
    # shellcheck disable=SC2086
    TMPDIR=$scratch UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 \
        "$build/tests/fuzz/fuzz.$what" $limits -max_len=16384 -max_total_time="$seconds" -print_final_stats=1 \
        -artifact_prefix="$home/" "$home/corpus" "$@" >"$home/log" 2>&1 || status=$?
    found=$(($(findings "$home") - before))
    executions=$(stat_of number_of_executed_units "$home/log")
    initial=$(coverage_of INITED "$home/log")
    final=$(coverage_of DONE "$home/log")
    report
}

# Prints the result of run.
report() {
    result='[       OK ]'
    if [ "$status" -ne 0 ]; then
        failed=$((failed + 1))
        result='[  FAILED  ]'
    fi
    if [ "$style" = table ]; then
        printf '%-18s %12s %10s %10s %9s\n' "$what" "${executions:-?}" "${final:-?}" \
            "$((${final:-0} - ${initial:-0}))" "$found"
        [ "$status" -eq 0 ] || echo "  $what: exit status $status: see $home/log"
        return
    fi
    echo "[ RUN      ] fuzz_$what"
    [ "$status" -eq 0 ] || tail -n 60 "$home/log"
    echo "$result fuzz_$what"
    echo "fuzz_$what: ${executions:-?} executions, $found findings"
}

failed=0
[ "$style" = test ] ||
    printf '%-18s %12s %10s %10s %9s\n' target executions coverage new findings
for target in "$@"; do
    run "$target"
done
[ "$style" = table ] || [ "$failed" -eq 0 ] || echo "$failed FAILED TEST(S)"
[ "$failed" -eq 0 ]
