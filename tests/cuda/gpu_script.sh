#!/bin/sh
# gpu_script.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER: bench/gpu.sh on a simulated device: every part, the report's tables, a
# part that fails, and a machine without a device.
set -eu
. "$1/tests/cuda/device_support.sh"

mkdir -p golden
cp -r "$source/tests/golden/ddl-1" golden/

# measure OPTION...: the script for one small model
measure() {
    rm -rf report report.tar.gz
    DDL=$ddl PYTHON=false simulated sh "$source/bench/gpu.sh" --out "$PWD/report" --size micro --batch 1 --seq 8 --steps 2 \
        --models baseline --golden "$PWD/golden" --ops rmsnorm_fwd --peers "" "$@" >out 2>&1
}

whole() {
    measure --minutes 9 || { cat out; fail "status"; }
    grep -q '^simulated GPU, 9.0, 4.0 GiB, micro, 1 × 8 tokens' report/report.md || fail "device"
    grep -q '^Ops: 3 passed, 0 failed, 0 skipped; test vectors: 1 passed, 0 failed, 0 skipped; bfloat16: 1 passed' report/report.md ||
        fail "test vectors"
    grep -qE '^\| `baseline` \| rmsnorm_fwd \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|$' report/report.md || fail "ops"
    grep -qE '^\| `baseline` \| [0-9.]+ \| 1.00 \| [0-9.]+ \| 0[.]0[0-9] \| 1.00 \|  \|  \|$' report/report.md || fail "speed"
    tar -tzf report.tar.gz | grep -q '^report/step-baseline.json$' || fail "archive"
}

# The steps are measured without graphs, and after other parts have failed.
failing() {
    echo '{' >golden/ddl-1/config.json
    ! CUDA_SIM_FAIL_CAPTURE=1 measure --minutes 9 || { cat out; fail "no status"; }
    grep -q '^- test vectors: failed with status 1: ' report/report.md || fail "test vectors"
    grep -q '^- step of baseline: no graphs: a command: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED$' report/report.md || fail "graphs"
    grep -qE '^\| `baseline` \| [0-9.]+ \| 1.00 ' report/report.md || fail "speed"
}

# The names of the devices have an index then.
several() {
    for device in cuda cuda:0 cuda:1; do
        CUDA_SIM_DEVICES=2 measure --device "$device" --minutes 0 || :
        ! grep -q ': no device' out || { cat out; fail "$device"; }
    done
    measure --device cuda:0 --minutes 0 || :
    ! grep -q ': no device' out || { cat out; fail "cuda:0 of one"; }
}

no_device() {
    ! CUDA_SIM_DEVICES=0 measure || fail "no status"
    tail -n 1 out | grep -q ': no device cuda$' || { cat out; fail "message"; }
    [ ! -e report/op.json ] || fail "measured"
}

check whole whole
check failing failing
check several several
check no_device no_device
finish
