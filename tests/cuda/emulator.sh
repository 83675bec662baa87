#!/bin/sh
# emulator.sh SOURCE [PROGRAM...]: tests the emulator of CUDA kernels with test_emulator built plain, with AddressSanitizer
# and with ThreadSanitizer: correct kernels have no report under many orders of threads, and each planted fault is found.
set -eu
source=$1
. "$source/tests/support/checks.sh"
[ $# -eq 4 ] || { skip emulator "there is no C++ compiler with both sanitizers"; finish; }
plain=$2
address=$3
thread=$4
kernels=$source/tests/cuda/kernels.cu
TSAN_OPTIONS=halt_on_error=1
export TSAN_OPTIONS

# ThreadSanitizer of gcc 12 does not start at every arrangement of the address space.
case $("$thread" row_sum 1 2>&1) in
    *"unexpected memory mapping"*) thread="setarch -R $thread" ;;
esac

correct() {
    for seed in 1 2 3 4 5; do
        for program in "$plain" "$address" "$thread"; do
            # shellcheck disable=SC2086
            [ "$($program "$1" "$seed" 2>&1 | grep -v "ASan doesn't fully support")" = ok ] || fail "$program $1 $seed"
        done
    done
}

# found PROGRAM KERNEL REGEX: the program's report on the kernel matches; LINE is the line of the fault.
found() {
    line=$(grep -n "fault: $2 \*/" "$kernels" | cut -d: -f1)
    expected=$(echo "$3" | sed "s/LINE/kernels.cu:$line/")
    # shellcheck disable=SC2086
    $1 "$2" 3 >report 2>&1 && status=0 || status=$?
    grep -qE -e "$expected" report || { cat report; fail "no report of: $expected"; }
    [ "$status" -ne 0 ] || fail "exit code 0"
}

for kernel in row_sum warp_operations product vectors histogram; do
    check $kernel correct $kernel
done

for kernel in missing_barrier missing_warp_barrier racing_blocks racing_blocks_after_barrier; do
    check $kernel found "$thread" $kernel " $kernel .*LINE "
done
for kernel in missing_wait uninitialized_shared missing_barrier; do
    check ${kernel}_is_nan found "$plain" $kernel 'expected 0, found -?nan'
done
check shared_overflow found "$address" shared_overflow 'use-after-poison .*LINE in shared_overflow'
for program in "$plain" "$thread"; do
    check shared_overflow found "$program" shared_overflow 'kernel shared_overflow, .*: a write to shared memory 128 bytes after the start of an array of 128 bytes$'
    check shared_underflow found "$program" shared_underflow 'kernel shared_underflow, .*: a write to shared memory 4 bytes before the first array$'
done
check global_overflow found "$address" global_overflow 'heap-buffer-overflow .*LINE in global_overflow'
check misaligned_vector found "$address" misaligned_vector 'LINE:.*misaligned address'

# What the emulator itself finds, it finds in every build.
while read -r kernel report; do
    for program in "$plain" "$address" "$thread"; do
        check "$kernel" found "$program" "$kernel" "kernel $kernel, block \(0, 0, 0\), seed 3: $report\$"
    done
done <<'END'
never_waited a thread ended with 1 asynchronous copies that it did not wait for
misaligned_copy LINE: cp.async: an address is not 16-byte aligned
matrix_in_global LINE: ldmatrix: a row is not in shared memory
divergent_barrier 7 of 256 threads wait at the barrier LINE, 249 have ended
two_barriers 128 of 256 threads wait at the barrier LINE, 128 of 256 threads wait at the barrier kernels.cu:[0-9]+
wrong_lane LINE: a lane reads from a lane that the mask does not name
wrong_mask LINE: a lane calls a warp operation whose mask does not name it
ended_lane LINE: the mask 0xffffffff names lane 16, which has ended
absent_lane LINE: the mask 0xffffffff names lane 24, which the block does not have
much_shared a block has more than 32 arrays or 8192 bytes of shared memory
waiting_lanes 16 of 32 threads wait at the barrier kernels.cu:[0-9]+, 16 of 32 threads wait at the warp operation LINE
END
finish
