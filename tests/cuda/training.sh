#!/bin/sh
# training.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER: training on a simulated CUDA device: runs that end in mid-step and are
# resumed have the bits of one that was not interrupted; each allocation that fails has a message.
set -eu
. "$1/tests/cuda/device_support.sh"

# The process's number is in pid.
train() {
    # shellcheck disable=SC2016,SC2086 # expanded by the shell that becomes the program
    simulated sh -c 'echo $$ >pid; exec "$@"' sh "$ddl" train --backend cuda --model ddl-cc-ec --hidden-size 16 $tiny_model \
        --batch 2 --seq 8 --accumulate 2 --steps 12 --log-every 1 --checkpoint-every 3 --val-every 4 --val-data shards --val-tokens 32 --telemetry-every 2 "$@" >out 2>&1
}

# metrics RUN: its lines, telemetry included, without what depends on time and place.
metrics() {
    sed 's/,"start":{.*}}$/}/; s/,"\(seconds\|train_seconds\|tokens_per_s\|mfu\|peak_memory\)":[0-9.e+-]*//g' "run_$1/metrics.jsonl" | sort -u
}

# The model in run_$1 is that of the run that was not interrupted, and so is each number of its metrics.
same_run() {
    cmp run_whole/model.safetensors "run_$1/model.safetensors" || fail "the model differs"
    metrics "$1" >metrics_found
    cmp metrics_whole metrics_found || { diff metrics_whole metrics_found; fail "metrics differ"; }
}

resume() {
    train --resume --out "run_$1" || { cat out; fail "not resumed"; }
    same_run "$1"
}

# lost_device VARIABLE N PERCENT...: the device is lost in the launch (CUDA_SIM_FAIL) or the download (CUDA_SIM_FAIL_DOWNLOAD) that is
# so many percent of the N of the whole run: one line reports it, and nothing that was read after it is used.
lost_device() {
    variable=$1 all=$2
    shift 2
    for percent; do
        rm -rf run_lost
        export "$variable=$((all * percent / 100))"
        ! train --out run_lost || fail "$percent %: no error"
        unset "$variable"
        grep '^ddl: ' out | grep -v ' written' >message || true
        [ "$(wc -l <message)" -eq 1 ] && grep -q '^ddl: step [0-9]*: .*CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)' message ||
            { cat out; fail "$percent %: no message"; }
        if [ -e run_lost/metrics.jsonl ]; then
            metrics lost >metrics_found
            [ -z "$(comm -13 metrics_whole metrics_found)" ] || fail "$percent %: a record of what was read after it"
        fi
        resume lost
    done
}

# Killed as soon as STEP is logged.
killed() {
    rm -rf run_killed
    train --out run_killed &
    job=$!
    tries=0
    until grep -qs "^{\"step\":$1,\"loss\"" run_killed/metrics.jsonl; do
        tries=$((tries + 1))
        [ $tries -lt 3000 ] && kill -0 $job || { cat out; fail "no step $1"; }
        sleep 0.1
    done
    kill -KILL "$(cat pid)"
    ! wait $job 2>/dev/null || fail "the run ended before it was killed"
    resume killed
}

# Each allocation fails once: one line reports it.
allocations() {
    all=$(sed -n 's/.*allocations \([0-9]*\).*/\1/p' report)
    [ "$all" -gt 10 ] || fail "$all allocations"
    for i in $(seq "$all"); do
        rm -rf run_small
        status=0
        CUDA_SIM_FAIL_ALLOCATION=$i train --out run_small || status=$?
        [ $status -eq 1 ] || { cat out; fail "allocation $i: exit status $status"; }
        ! grep 'simulated CUDA device' out || fail "allocation $i: a message of the device"
        [ "$(grep -c '^ddl: ' out)" -eq 1 ] && grep -q '^ddl: .*out of \(device \)\?memory' out || { cat out; fail "allocation $i: no message"; }
    done
}

make_data
rm -rf run_whole
CUDA_SIM_REPORT=$PWD/report train --out run_whole || { cat out; exit 1; }
metrics whole >metrics_whole
launches=$(awk '$1 == "kernel" { n += $3 } END { print n }' report)
downloads=$(sed -n 's/.*downloads \([0-9]*\).*/\1/p' report)
check lost_device lost_device CUDA_SIM_FAIL "$launches" 3 12 25 38 50 62 75 88 97 100
check lost_download lost_device CUDA_SIM_FAIL_DOWNLOAD "$downloads" 3 12 20 25 33 38 45 50 57 62 70 75 82 88 94 97 99 100
check killed killed 5
check allocations allocations
finish
