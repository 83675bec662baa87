# Training by ranks that are processes: the losses of one process, and the bits of an unsignaled run after ranks were
# killed, stopped or suspended.
#   sh mpi.sh PROGRAM SOURCE SCRATCH [PLUGIN]
# DDL_KILLS (default 3, in a sample 1): how often a rank is killed, for 2 and for 4 ranks.
# DDL_MPI_TIMEOUT (default 200): seconds for a run. DDL_SHIM: tests/crash/shim.c. DDL_MPIRUN: see tests/comm/mpi.sh.
set -eu
program=$1
. "$2/tests/support/checks.sh"
. "$2/tests/comm/ranks.sh"
source=$2
scratch=$3
steps=150
model=ddl-cc-ec
ranks_tried="2 3 4" kills=3 disks="40 250 730"
! is_sample || ranks_tried="2 3" kills=1 disks=250
need_mpirun "${4:-}"

rm -rf "${scratch:?}"/*
mkdir "$scratch/data"
cat "$source"/docs/*.md | head -c 200000 >"$scratch/text.txt"
"$program" tokenizer train "$scratch/text.txt" --vocab-size 300 --overwrite --out "$scratch/data/tokenizer.json" >/dev/null 2>&1
"$program" data build "$scratch/text.txt" --tokenizer "$scratch/data" --val-fraction 0.1 --out "$scratch/data" >/dev/null 2>&1

# What a rank does before the program: it writes its process id to $scratch/rank.<rank>; rank $leaves ends as after a
# signal; rank 0 has a disk of $disk bytes.
# shellcheck disable=SC2016 # expanded by the rank's shell
prepare='rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo $$ >"$0/rank.$rank"
[ "$rank" != "$leaves" ] || exit 3
if [ "$rank" -eq 0 ] && [ -n "$disk" ]; then
    export LD_PRELOAD="$DDL_SHIM" DDL_SHIM_NOSYNC=1 DDL_SHIM_UNDER="$0" DDL_SHIM_BYTES="$disk"
fi
exec "$@"'
export leaves= disk=

# train RANKS OUT OPTION...: the program under mpirun. Open MPI 4.1 can remain, without ranks, if one is killed while it
# connects ("PMIX ERROR: UNREACHABLE"): hence the time limit.
train() {
    ranks=$1
    out=$2
    shift 2
    forget_ranks
    # shellcheck disable=SC2086 # words of the launcher
    timeout -k 5 "${DDL_MPI_TIMEOUT:-600}" $mpirun -n "$ranks" sh -c "$prepare" "$scratch" \
        "$program" train --model $model --size micro --hidden-size 32 --seq 32 --batch 2 --global-batch 8 \
        --train-data "$scratch/data" --threads 1 --steps $steps --warmup 4 --lr 1e-3 --val-every 25 --val-tokens 2000 \
        --checkpoint-every 10 --log-every 1 --comm-bucket 16384 --out "$scratch/$out" "$@" >"$scratch/log" 2>&1
}

# Every line of the run's metrics without what depends on the clock.
losses() {
    sed -n 's/^{"step":\([0-9]*\),"loss":\([0-9.e-]*\).*/\1 \2/p' "$scratch/$1/metrics.jsonl"
}

same_losses() {
    losses "$1" >"$scratch/a"
    losses "$2" >"$scratch/b"
    [ "$(wc -l <"$scratch/a")" -eq $((steps + 1)) ] || fail "$1: $(wc -l <"$scratch/a") lines"
    paste -d ' ' "$scratch/a" "$scratch/b" | awk -v limit="$3" '
        { d = $2 - $4; if ($1 != $3 || d > limit * $2 || -d > limit * $2) { print; bad = 1 } } END { exit bad }' ||
        fail "the losses of $1 and $2 differ"
}

same_run() {
    same_losses "$1" "$2" 0
    cmp "$scratch/$1/model.safetensors" "$scratch/$2/model.safetensors"
    cmp "$scratch/$1/checkpoint-$steps/optimizer.safetensors" "$scratch/$2/checkpoint-$steps/optimizer.safetensors"
}

# Waits until the rank has started, and a random part of the time of a whole run: while it opens its data, trains or
# validates.
wait_for() {
    within 600 test -s "$scratch/rank.$1" || fail "rank $1 has not started: $(cat "$scratch/log")"
    sleep "$(od -An -N1 -tu1 /dev/urandom |
        awk -v seconds="$(cat "$scratch/seconds-$ranks")" '{ print 0.7 * seconds * $1 / 256 }')"
}

ranks_of_one() {
    train 1 one
    for n in $ranks_tried; do
        start=$(date +%s.%N)
        train $n "ranks-$n"
        awk -v start="$start" -v end="$(date +%s.%N)" 'BEGIN { print end - start }' >"$scratch/seconds-$n"
        same_losses one "ranks-$n" 1e-4
    done
}

# Waits until the run has logged a step.
wait_for_step() { within 600 test -s "$scratch/$1/metrics.jsonl" || fail "no step: $(cat "$scratch/log")"; }

# signaled WAIT RANKS OUT RANK SIGNAL OPTION...: starts or resumes a run and sends the rank a signal after the command
# WAIT. Returns the status of the run.
signaled() {
    wait=$1 ranks=$2 out=$3 rank=$4 signal=$5
    shift 5
    in_background train "$ranks" "$out" "$@"
    $wait
    kill -"$signal" "$(cat "$scratch/rank.$rank")" 2>/dev/null || true
    status=0
    wait $job || status=$?
    none_left
    return $status
}

# The option that continues a run, if it has begun.
resume_of() {
    ! [ -e "$scratch/$1/recipe.yaml" ] || echo --resume
}

# A run that has finished before the signal is none that was killed: another one begins.
killed() {
    hits=0
    for i in $(seq $((10 * ${DDL_KILLS:-$kills}))); do
        # shellcheck disable=SC2046 # an option or nothing
        if signaled "wait_for $((i % $1))" "$1" "killed-$1" $((i % $1)) KILL $(resume_of "killed-$1"); then
            rm -rf "$scratch/killed-$1"
        else
            hits=$((hits + 1))
        fi
        [ $hits -lt "${DDL_KILLS:-$kills}" ] || break
    done
    [ $hits -gt 0 ] || fail "no signal reached a running job"
    # shellcheck disable=SC2046
    train "$1" "killed-$1" $(resume_of "killed-$1") || fail "$(cat "$scratch/log")"
    same_run "ranks-$1" "killed-$1"
}

# The sources of attention over depth are memory of a rank.
sources_of_ranks() {
    model=attnres-block steps=40
    train 1 depth
    train 2 depth-2
    same_losses depth depth-2 1e-4
    signaled "wait_for_step depth-killed" 2 depth-killed 1 KILL || true
    # shellcheck disable=SC2046
    train 2 depth-killed $(resume_of depth-killed)
    same_run depth-2 depth-killed
}

# A signal to one rank stops all of them after a step, with a checkpoint.
terminated() {
    status=0
    signaled "wait_for_step terminated-$1" 3 "terminated-$1" 2 "$1" || status=$?
    [ $status -eq 3 ] || fail "status $status: $(cat "$scratch/log")"
    [ "$(grep -c '^ddl: stopped after step .*, --resume continues$' "$scratch/log")" -eq 1 ] ||
        fail "not stopped in a step: $(cat "$scratch/log")"
    train 3 "terminated-$1" --resume || fail "$(cat "$scratch/log")"
    same_run ranks-3 "terminated-$1"
}

# Checkpoints by time, which rank 0's clock decides: the same files at the end, also after a kill.
by_time() {
    train 2 by-time --checkpoint-seconds 0.000001 || fail "$(cat "$scratch/log")"
    same_run ranks-2 by-time
    [ "$(ls -A "$scratch/ranks-2")" = "$(ls -A "$scratch/by-time")" ] || fail "$(ls -A "$scratch/by-time")"
    rm -rf "$scratch/by-time"
    signaled "wait_for_step by-time" 2 by-time 1 KILL --checkpoint-seconds 0.000001 || true
    train 2 by-time --resume --checkpoint-seconds 0.000001 || fail "$(cat "$scratch/log")"
    same_run ranks-2 by-time
    [ "$(ls -A "$scratch/ranks-2")" = "$(ls -A "$scratch/by-time")" ] || fail "$(ls -A "$scratch/by-time")"
}

# A rank ends while the others start: the job ends, and has written nothing.
leaving() {
    for leaves in 0 2; do
        ! train 3 left || fail "no error"
        none_left
        ! [ -e "$scratch/left" ] || fail "it has written $scratch/left"
    done
}

# The disk of rank 0 is full when so many checkpoints are written: all ranks end, with one message. The run continues.
full_disk() {
    checkpoint=$(du -sb "$scratch/ranks-2/checkpoint-$steps" | cut -f1)
    for percent in $disks; do
        rm -rf "$scratch/full"
        disk=$((checkpoint * percent / 100))
        ! train 2 full || fail "no error with $disk bytes"
        disk=
        none_left
        [ "$(grep -c '^ddl: .*No space left on device' "$scratch/log")" -eq 1 ] || fail "$(cat "$scratch/log")"
        # shellcheck disable=SC2046
        train 2 full $(resume_of full) || fail "$(cat "$scratch/log")"
        same_run ranks-2 full
    done
}

# Not before it has joined: MPI_Init waits for a stopped process without limit.
suspended() {
    ! signaled "wait_for_step suspended" 2 suspended 1 STOP --comm-timeout 2 --steps 1000000 || fail "no error"
    grep -q 'rank 1 (host .*) did not reach .* within 2 s' "$scratch/log" || fail "$(cat "$scratch/log")"
}

# The launcher starts the ranks with different options.
different() {
    # shellcheck disable=SC2016,SC2086
    ! $mpirun -n 2 sh -c 'exec "$0" "$@" --lr "1e-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"' "$program" train --model baseline \
        --size micro --train-data "$scratch/data" --out "$scratch/different" >"$scratch/log" 2>&1 || fail "no error"
    [ "$(grep -c '^ddl: rank 1 of 2 (host .*): lr: the ranks differ: expected 1 as on rank 0, found 0.1$' \
        "$scratch/log")" -eq 1 ] || fail "$(cat "$scratch/log")"
    # shellcheck disable=SC2086
    ! $mpirun -n 1 "$program" train --model baseline --size micro --train-data "$scratch/data" --out "$scratch/different" : \
        -n 1 "$program" train --model baseline --size micro --dry-run >"$scratch/log" 2>&1 || fail "no error"
    [ "$(grep -c '^ddl: rank 1 of 2 (host .*): --dry-run: the ranks differ: expected 0 as on rank 0, found 1$' \
        "$scratch/log")" -eq 1 ] || fail "$(cat "$scratch/log")"
    ! [ -e "$scratch/different" ] || fail "it has written $scratch/different"
}

check ranks_have_the_losses_of_one ranks_of_one
check killed_2 killed 2
check by_time by_time
check sources_of_ranks sources_of_ranks
check_full killed_4 killed 4
check_full terminated terminated TERM
check_full preempted terminated USR1
check_full leaving leaving
if [ -n "${DDL_SHIM:-}" ]; then
    check full_disk full_disk
else
    skip full_disk "DDL_SHIM is not set"
fi
check_full suspended suspended
check different_recipes different
finish
