#!/bin/sh
# traffic.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDERS: what the CUDA backend's kernels move, op by op, is within its budget. cuBLASLt
# has no algorithm: the backend's kernels compute every product.
set -eu
. "$1/tests/cuda/device_support.sh"
export CUDA_SIM_NO_ALGORITHM=1 CUDA_SIM_REPORT="$PWD/report"

# Every kernel has been launched: kernels that a measurement does not launch itself have one of their own.
every_kernel() {
    sed -n 's/^    K([a-z0-9_]*, *\([a-z0-9_]*\), .*/\1/p' "$source/src/backend/cuda/kernels/kernels.h" | sort >kernels
    sed -n 's/^kernel \([^ ]*\) .*/\1/p' report | sort >measured
    [ -s kernels ] && comm -23 kernels measured >others && ! grep . others || fail "not measured: add calls to tests/cuda/traffic_of_ops.c"
}

check traffic simulated "$ddl"
check every_kernel every_kernel
finish
