#!/bin/sh
# traffic.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDERS: what the CUDA backend's kernels move, op by op, is within its budget.
set -eu
. "$1/tests/cuda/device_support.sh"
check traffic simulated "$ddl"
finish
