#!/bin/sh
# sanitizers.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER BUILD_FOLDER: ops of the CUDA backend on simulated devices whose kernels are
# compiled with AddressSanitizer (accesses outside of blocks of memory, shared and local arrays) and UndefinedBehaviorSanitizer,
# or with ThreadSanitizer (races between threads of a block and between blocks: tests/cuda/emulator.h).
set -eu
. "$1/tests/cuda/device_support.sh"
build=$5

# with SANITIZER COMMAND...: the command with that driver. The program is not instrumented: the sanitizer is loaded before it.
# ThreadSanitizer of gcc 12 does not start at every arrangement of the address space: it is not randomized, if that is permitted.
with() {
    fixed=""
    [ "$1" != thread ] || ! setarch -R true 2>/dev/null || fixed="setarch -R"
    folder=$build/$1
    shift
    runtime=$(ldd "$folder/libcuda.so.1" | sed -n 's/.*lib[at]san.* => \(.*\) (.*/\1/p')
    [ -n "$runtime" ] || fail "$folder/libcuda.so.1 has no sanitizer"
    $fixed env LD_PRELOAD="$runtime" LD_LIBRARY_PATH="$folder:$driver" ASAN_OPTIONS=detect_leaks=0:handle_segv=0 "$@"
}

# ops SANITIZER NAME...: the ops whose names contain one of these, or all.
ops() {
    sanitizer=$1
    shift
    with "$sanitizer" "$ddl" verify --ops "$@" --backend cuda >ops.txt 2>&1 || { cat ops.txt; fail "an error"; }
    ! grep -E 'Sanitizer|runtime error|simulated CUDA device' ops.txt || fail "a report"
    passed=$(grep -c PASS ops.txt)
    [ "$passed" -ge "$least" ] || fail "$passed ops"
}

# ThreadSanitizer compares the clocks of all threads at each barrier: all ops would take half an hour. One case for each
# way in which kernels share memory between threads.
shared="delta_fwd.l2 compress_bwd rmsnorm_bwd.accumulate.bf16 swiglu_bwd.bf16 rope_bwd.bf16 project_bwd.target.bf16 hyper_bwd.static
    depth_bwd.first streams_fold_bwd matmul.fc.one matmul_q8.fc.one quantize_q8.extreme rank.ties loss_grad.negative cross_entropy.loss
    embed_bwd pool_bwd.mean fold_bwd.mix scale_bwd.one highway_bwd.one laurel_bwd.no_rank weighted_sum_bwd attention_fwd.one.bf16
    attention_fwd.ragged.bf16 choose.greedy"

[ -e "$build/thread/libcuda.so.1" ] || { skip sanitizers "not built: ninja tests_full"; finish; }
least=270
check address ops address
least=25
# shellcheck disable=SC2086
check thread ops thread $shared
finish
