#!/bin/sh
# ranks.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER MPI_PLUGIN: training on several simulated CUDA devices, whose ranks exchange
# by the stand-in for NCCL: losses, checkpoints, and what is left of a job in which a rank is lost.
set -eu
. "$1/tests/cuda/device_support.sh"
. "$source/tests/comm/ranks.sh"
scratch=$PWD
need_mpirun "$5"
export CUDA_SIM_DEVICES=4 TMPDIR="$scratch"
devices() { simulated run_ranks "$@"; }

# train RANKS BACKEND OUT OPTION...: a model of one layer; buckets of 1,024 numbers, of which the last is shorter and has
# unequal pieces. Standard error in log.
train() {
    ranks=$1 backend=$2 out=$3
    shift 3
    # shellcheck disable=SC2086
    devices "$ranks" "$ddl" train --backend "$backend" --model baseline --hidden-size 8 $tiny_model --global-batch 4 --batch 1 \
        --seq 4 --schedule constant --log-every 1 --checkpoint-every 0 --comm-bucket 4096 --out "$out" "$@" >log 2>&1
}

must_train() { train "$@" || { cat log; fail "no run"; }; }
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([0-9.e-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

# Gradients of step 1, and losses before training and of steps 1 to $2, as those of run_cpu but for roundings of float32, in which
# a model's losses on both backends differ too (models.sh has the same limit): sums of gradients begin at another rank.
same_losses() {
    same_gradients run_cpu "$1"
    losses run_cpu | head -n $(($2 + 1)) >expected
    losses "$1" >found
    paste -d ' ' expected found | awk -v steps="$2" '{ d = $2 - $4; if ($1 != $3 || d > 1e-6 * $2 || -d > 1e-6 * $2) exit 1 }
        END { exit NR != steps + 1 }' || { paste expected found; fail "losses of $1"; }
}

# One rank has no exchange.
several_ranks() {
    must_train "$1" cuda "run_$1" --steps 2
    [ "$1" -eq 1 ] || grep -q '^ddl: exchange of gradients: NCCL 2\.28\.3$' log || { cat log; fail "no NCCL"; }
    same_losses "run_$1" 2
}

# Ranks on one device exchange through host memory, and must not where the user wishes otherwise. In bfloat16 owners add the
# summands in the order of the ranks both ways: the losses are the same digits.
bfloat16() {
    must_train 2 cuda:0 run_host --steps 2 --comm-dtype bf16
    grep -q '^ddl: exchange of gradients through host memory: ranks 0 and 1 (host .*) have the same device$' log || { cat log; fail "no note"; }
    must_train 2 cuda run_device --steps 2 --comm-dtype bf16
    grep -q 'gradients: NCCL' log || { cat log; fail "no NCCL"; }
    losses run_host >expected
    losses run_device >found
    [ "$(wc -l <found)" -eq 3 ] && cmp expected found || { paste expected found; fail "the losses differ"; }
    same_gradients run_host run_device
}

# Each rank has the memory of its device: half of it would be too little. The prediction includes NCCL's memory.
memory() {
    export CUDA_SIM_MEMORY=2600000000
    must_train 2 cuda run_memory --steps 1
    must_train 1 cuda run_predicted --dry-run --ranks 2 --steps 1 --json
    grep -q '"exchange":1677[0-9]\{6\},' log || { cat log; fail "the prediction of 1600 MiB"; }
    export CUDA_SIM_MEMORY=800000000
    ! train 2 cuda run_small --steps 1 || fail "no error"
    grep -q '^ddl: the run needs 2\.1 GiB of memory, backend cuda has 0\.7 GiB free; ' log || { cat log; fail "no message"; }
    DDL_EXCHANGE=host must_train 2 cuda run_small --steps 1
}

choice() {
    CUDA_SIM_SLICES=2 must_train 2 cuda run_slices --steps 1
    grep -q 'through host memory: ranks 0 and 1 (host .*) have the same device$' log || { cat log; fail "no note"; }
    ! DDL_EXCHANGE=device train 2 cuda:0 run_no --steps 1 || fail "no error"
    [ "$(grep -c '^ddl: DDL_EXCHANGE: device: ranks 0 and 1 (host .*) have the same device$' log)" -eq 1 ] || { cat log; fail "no message"; }
    ! DDL_EXCHANGE=device train 2 cpu run_no --steps 1 || fail "no error"
    grep -q '^ddl: DDL_EXCHANGE: device: rank 0 (host .*): backend cpu has no exchange between devices$' log || { cat log; fail "no message"; }
    ! DDL_EXCHANGE=usb train 2 cpu run_no --steps 1 || fail "no error"
    grep -q "^ddl: DDL_EXCHANGE: expected auto, host or device, found 'usb'\$" log || { cat log; fail "no message"; }
    DDL_EXCHANGE=host must_train 2 cuda run_forced --steps 1
    ! grep -q 'exchange of gradients' log || { cat log; fail "a note"; }
    same_losses run_forced 1
}

# NCCL of a Python environment, where the dynamic linker finds none.
environment() {
    packages=environment/lib/python3.11/site-packages/nvidia/nccl/lib
    mkdir -p no_nccl $packages
    ln -sf "$driver/libcuda.so.1" "$driver/libcublasLt.so.13" no_nccl
    : >no_nccl/libnccl.so.2
    ln -sf "$driver/libnccl.so.2" $packages/libnccl.so.2
    devices() { VIRTUAL_ENV=$PWD/environment LD_LIBRARY_PATH=$PWD/no_nccl run_ranks "$@"; }
    must_train 2 cuda run_environment --steps 1
    grep -q 'gradients: NCCL' log || { cat log; fail "no NCCL"; }
}

# A run of four steps: the first on the CPU, and the others on two devices, on three CPU ranks, and on one device.
moved() {
    set -- --checkpoint-every 1
    must_train 1 cpu run_moved --steps 1 "$@"
    must_train 2 cuda run_moved --steps 2 --resume "$@"
    grep -q 'gradients: NCCL' log || { cat log; fail "no NCCL"; }
    must_train 3 cpu run_moved --steps 3 --resume "$@"
    must_train 1 cuda run_moved --steps 4 --resume "$@"
    same_losses run_moved 4
}

# NCCL reports that rank 1 cannot be reached, from its third group of calls on.
lost_rank() {
    export NCCL_SIM_LOST=1:2
    ! train 3 cuda run_lost --steps 2 || fail "no error"
    grep -q '^ddl: rank . of 3 on .*: step 1: backend cuda: NCCL: .*: remote process exited or there was a network error (rank 1 cannot be reached)$' log ||
        { cat log; fail "no message"; }
    none_left
}

# for_rank_1 VARIABLE=VALUE: in the environment of rank 1.
for_rank_1() {
    setting=$1
    devices() {
        ranks=$1
        shift
        # shellcheck disable=SC2016 # expanded by the rank's shell
        simulated run_ranks "$ranks" sh -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || export "$1"
            shift
            exec "$@"' sh "$setting" "$@"
    }
}

# The device of rank 1 fails in the first step.
lost_device() {
    for_rank_1 CUDA_SIM_FAIL=60
    ! train 2 cuda run_device_lost --steps 2 || fail "no error"
    grep -q '^ddl: rank 1 of 2 on .*: step 1: backend cuda: .*: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)$' log ||
        { cat log; fail "no message"; }
    none_left
}

# The device of rank 1 fails before one of its downloads, some of which are moments for a checkpoint: the job ends with a message
# and continues from the last whole checkpoint.
lost_download() {
    export DDL_EXCHANGE="$1"
    set -- --steps 3 --checkpoint-every 1
    rm -rf run_whole
    for_rank_1 CUDA_SIM_REPORT="$scratch/report"
    must_train 2 cuda run_whole "$@"
    downloads=$(sed -n 's/.*downloads \([0-9]*\).*/\1/p' report)
    [ "$downloads" -gt 10 ] || fail "$downloads downloads"
    for percent in 20 35 50 65 80 95; do
        rm -rf run_lost
        for_rank_1 CUDA_SIM_FAIL_DOWNLOAD=$((downloads * percent / 100))
        ! train 2 cuda run_lost "$@" || fail "no error"
        grep -q '^ddl: .*CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)$' log || { cat log; fail "no message"; }
        none_left
        [ ! -e run_lost/diverged.json ] || fail "a record of a divergence"
        for_rank_1 A=
        must_train 2 cuda run_lost --resume "$@"
        cmp run_whole/model.safetensors run_lost/model.safetensors || fail "the model differs"
    done
}

# NCCL reports nothing: the time limit ends the job. A rank that is later than it is named instead: then a longer one is tried.
stuck_rank() {
    export NCCL_SIM_STUCK=1:2
    for limit in 8 32 128; do
        ! train 2 cuda run_stuck --steps 2 --comm-timeout $limit || fail "no error"
        none_left
        ! grep -q "^ddl: rank . of 2 on .*: all ranks reached step 1, but messages did not arrive within $limit s" log || return 0
    done
    cat log
    fail "no message"
}

# Rank 1 does not connect its device.
absent_rank() {
    ! NCCL_SIM_ABSENT=1 train 2 cuda run_absent --steps 2 --comm-timeout 8 || fail "no error"
    grep -q "^ddl: rank . of 2 on .*: all ranks reached the start of the run, but messages did not arrive within 8 s" log || { cat log; fail "no message"; }
    none_left
}

first_step() { [ -s "run_killed/metrics.jsonl" ]; }

killed_rank() {
    in_background train 2 cuda run_killed --steps 1000
    within 300 first_step || fail "no step: $(cat log)"
    kill -KILL "$(cat "$scratch/rank.1")"
    ! wait $job || fail "no error"
    none_left
    [ -s log ] || fail "no message"
}

rm -rf run_* shards
make_data
must_train 1 cpu run_cpu --steps 4
for ranks in 1 2 4; do
    check "losses_of_$ranks" several_ranks "$ranks"
done
check bfloat16 bfloat16
check memory memory
check choice choice
check_full environment environment
check moved moved
check lost_rank lost_rank
check lost_device lost_device
for exchange in device host; do
    check_full "lost_download_$exchange" lost_download $exchange
done
check_full stuck_rank stuck_rank
check_full absent_rank absent_rank
check_full killed_rank killed_rank
finish
