#!/bin/sh
# traffic.sh SOURCE [PLUGIN PROGRAM DRIVER_FOLDER]: what the CUDA backend's kernels move, op by op, is within its budget.
set -eu
source=$1
. "$source/tests/support/checks.sh"
[ $# -eq 4 ] || { skip traffic "there is no C++ compiler"; finish; }
traffic() { DDL_BACKEND_PLUGIN=$1 LD_LIBRARY_PATH=$3 "$2"; }
check traffic traffic "$2" "$3" "$4"
finish
