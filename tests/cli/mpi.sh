# Commands under mpirun: results and files do not depend on the number of ranks, rank 0 alone prints.
#   sh mpi.sh PROGRAM SOURCE SCRATCH [PLUGIN]
# DDL_MPIRUN: see tests/comm/mpi.sh.
set -eu
program=$1
. "$2/tests/support/checks.sh"
. "$2/tests/comm/ranks.sh"
source=$2
ranks_tried="2 3" ranks_killed="0 1"
! is_sample || ranks_tried=2 ranks_killed=1
scratch=$3
need_mpirun "${4:-}"

rm -rf "${scratch:?}"/*
mkdir "$scratch/data"
cp "$source/LICENSE" "$scratch/text.txt"
"$program" tokenizer train "$scratch/text.txt" --vocab-size 300 --overwrite --out "$scratch/data/tokenizer.json" --quiet >/dev/null
"$program" data build "$scratch/text.txt" --tokenizer "$scratch/data" --out "$scratch/data" --quiet
model=$source/tests/golden/tasks/model
shard=$source/tests/golden/curve-baseline/tokens.bin

# launch RANKS ARGUMENT...: standard output in $scratch/out, standard error in $scratch/log.
launch() {
    ranks=$1
    shift
    run_ranks "$ranks" "$program" "$@" >"$scratch/out" 2>"$scratch/log"
}

# launch_ok RANKS ARGUMENT...
launch_ok() { launch "$@" || fail "$(cat "$scratch/log")"; }

# The seconds of a result depend on the clock.
result() { sed 's/,"seconds":[0-9.]*//g' "$scratch/out" >"$1"; }

same() { cmp "$1" "$2" || fail "$(cat "$1" "$2")"; }

losses() {
    for n in 1 $ranks_tried; do
        launch_ok $n eval "$model" --val-data "$shard" --seq 16 --batch 2 --val-tokens 300 --threads 1 --json
        result "$scratch/shards.$n"
        launch_ok $n eval "$model" "$model" --text "$source/LICENSE" --tokenizer "$source/data/tokenizer" --seq 32 \
            --stride 16 --batch 1 --val-tokens 200 --threads 1 --json
        result "$scratch/text.$n"
        [ "$(wc -l <"$scratch/text.$n")" -eq 1 ] || fail "$(cat "$scratch/text.$n")"
        same "$scratch/shards.1" "$scratch/shards.$n"
        same "$scratch/text.1" "$scratch/text.$n"
    done
}

# score RANKS: two tasks, of which one has three blocks of documents.
score() {
    launch "$1" eval "$model" --tasks "$scratch/many.jsonl,piqa" --limit 150 --data "$source/data/tasks" \
        --tokenizer "$source/data/tokenizer" --threads 1 --items "$scratch/items.jsonl" --csv
}

# The lines of items, in their order, and the scores; also if rank 0 or another rank was killed in the meantime.
tasks() {
    awk 'BEGIN { for (i = 0; i < 150; i++) printf "{\"context\": \"No. %d%s\", \"choices\": [\"one\", \"two\"], \"gold\": %d}\n", i, i % 3 ? " and so on" : "", i % 2 }' \
        >"$scratch/many.jsonl"
    score 1 || fail "$(cat "$scratch/log")"
    mv "$scratch/items.jsonl" "$scratch/items.1"
    mv "$scratch/out" "$scratch/tasks.1"
    [ "$(wc -l <"$scratch/items.1")" -eq 300 ] || fail "$(wc -l <"$scratch/items.1") items"
    for n in $ranks_tried; do
        score $n || fail "$(cat "$scratch/log")"
        same "$scratch/tasks.1" "$scratch/out"
        cmp "$scratch/items.1" "$scratch/items.jsonl"
        rm "$scratch/items.jsonl"
    done
    for rank in $ranks_killed; do
        rm -f "$scratch/items.jsonl"
        in_background score 2
        within 600 test -s "$scratch/items.jsonl" || fail "no items: $(cat "$scratch/log")"
        kill -KILL "$(cat "$scratch/rank.$rank")" 2>/dev/null || true
        wait $job || true
        none_left
        score 2 || fail "$(cat "$scratch/log")"
        same "$scratch/tasks.1" "$scratch/out"
        [ "$(wc -l <"$scratch/items.jsonl")" -eq 300 ] || fail "$(wc -l <"$scratch/items.jsonl") items"
    done
}

# One message, from rank 0.
errors() {
    ! launch 2 eval "$scratch/none" --val-data "$shard" || fail "no error"
    [ "$(grep -c '^ddl: ' "$scratch/log")" -eq 1 ] || fail "$(cat "$scratch/log")"
    ! launch 2 eval "$model" --text - || fail "no error"
    grep -q '^ddl: --text: several processes cannot share standard input: expected a file$' "$scratch/log" ||
        fail "$(cat "$scratch/log")"
    ! launch 2 inspect "$model" || fail "no error"
    [ "$(grep -c '^ddl: inspect: does not divide its work between processes: ' "$scratch/log")" -eq 1 ] ||
        fail "$(cat "$scratch/log")"
    launch_ok 2 inspect --help
    [ "$(grep -c '^usage: ddl inspect' "$scratch/out")" -eq 1 ] || fail "$(cat "$scratch/out")"
}

# All ranks get the signal, one from here and the other from the launcher; at most rank 0 prints that it was interrupted.
interrupted_eval() {
    yes "a long text about nothing" | head -c 3000000 >"$scratch/long.txt"
    in_background launch 2 eval "$model" --text "$scratch/long.txt" --tokenizer "$source/data/tokenizer" --seq 32 --stride 1 \
        --threads 1
    within 600 started 2 || fail "not all ranks started: $(cat "$scratch/log")"
    within 600 handles_signals 1 || fail "no signal handler: $(cat "$scratch/log")"
    # Open MPI's mpirun may hang if a rank ends before the others have connected.
    within 600 grep -q tokens "$scratch/log" || fail "no progress: $(cat "$scratch/log")"
    kill -TERM "$(cat "$scratch/rank.1")"
    ! wait $job || fail "no error"
    none_left
    [ "$(grep -c '^ddl: ' "$scratch/log")" -le 1 ] || fail "$(cat "$scratch/log")"
}

# write_sweep NAME STEPS CHECKPOINT_EVERY [STEPS_OF_CHOOSE [EXTEND [VALUES_OF_CHOOSE]]]
write_sweep() {
    cat >"$scratch/$1.yaml" <<EOF
base: {vocab_size: 300, num_hidden_layers: 1, num_attention_heads: 1, hidden_size: 8, head_dim: 8, block_size: 16,
       batch: 2, warmup: 1, steps: $2, threads: 1, train_data: $scratch/data, checkpoint_every: $3, log_every: 1}
models: [baseline, ddl-1]
seeds: [0, 1, 2]
choose: {${6:-key: lr, values: [1e-3, 2e-3]}, steps: ${4:-4}, extend: ${5:-0}}
out: $scratch/$1
EOF
}

# The files of each run of two sweeps.
same_sweeps() {
    for model in "$scratch/$1"/*/model.safetensors "$scratch/$1"/choose/*/model.safetensors; do
        cmp "$model" "$scratch/$2${model#"$scratch/$1"}"
    done
    sed 's/"seconds":[0-9.]*/"seconds":0/g; s/"seconds_left":[0-9.]*/"seconds_left":0/' "$scratch/$1/sweep.json" |
        sed "s:$scratch/$1:OUT:g" >"$scratch/a"
    sed 's/"seconds":[0-9.]*/"seconds":0/g; s/"seconds_left":[0-9.]*/"seconds_left":0/' "$scratch/$2/sweep.json" |
        sed "s:$scratch/$2:OUT:g" >"$scratch/b"
    same "$scratch/a" "$scratch/b"
}

sweeps() {
    write_sweep alone 8 0
    DDL_COMM=none "$program" sweep "$scratch/alone.yaml" --quiet || fail "alone"
    for n in $ranks_tried; do
        write_sweep "ranks-$n" 8 0
        launch_ok $n sweep "$scratch/ranks-$n.yaml" --jobs $((4 - n))
        same_sweeps alone "ranks-$n"
        [ "$(grep -c ': started$' "$scratch/log")" -eq 10 ] || fail "$(cat "$scratch/log")"
        [ "$(grep -c 'chosen by loss' "$scratch/log")" -eq 2 ] || fail "$(cat "$scratch/log")"
        launch_ok $n sweep "$scratch/ranks-$n.yaml" --jobs $((4 - n)) --json --quiet
        [ "$(wc -l <"$scratch/out")" -eq 1 ] || fail "$(cat "$scratch/out")"
    done
    ! launch 2 sweep "$scratch/alone.yaml" --jobs 0 || fail "no error"
    launch_ok 2 sweep "$scratch/alone.yaml" --status
    [ "$(grep -c 'finished' "$scratch/out")" -eq 10 ] || fail "$(cat "$scratch/out")"
}

# Lists that are extended: the same files as without ranks. The second start reads the extensions, and has the runs that were
# added in the order of the settings.
extended_sweeps() {
    values='grid: {lr: [1e-3, 2e-3], clip: [1, 2]}'
    write_sweep alone-extended 8 0 20 2 "$values"
    DDL_COMM=none "$program" sweep "$scratch/alone-extended.yaml" --quiet || fail "alone"
    grep -q '"added":true' "$scratch/alone-extended/sweep.json" || fail "nothing was added"
    write_sweep extended 8 0 20 2 "$values"
    launch_ok 2 sweep "$scratch/extended.yaml" --jobs 2
    grep -q 'is at the edge of the values' "$scratch/log" || fail "$(cat "$scratch/log")"
    rm -r "$scratch"/extended/ddl-1_seed=1
    launch_ok 2 sweep "$scratch/extended.yaml" --jobs 2
    grep -q 'ddl-1_seed=1: started' "$scratch/log" || fail "$(cat "$scratch/log")"
    DDL_COMM=none "$program" sweep "$scratch/alone-extended.yaml" --quiet || fail "alone"
    same_sweeps alone-extended extended
}

# A run of choose that is killed has no result: the runs of its setting wait, and --retry chooses as without the kill.
killed_candidate() {
    write_sweep calm 8 0 20
    DDL_COMM=none "$program" sweep "$scratch/calm.yaml" --quiet || fail "calm"
    write_sweep hurt 8 0 20
    export LD_PRELOAD="$DDL_SHIM" DDL_SHIM_UNDER="$scratch/hurt/choose/ddl-1_lr=2e-3/" DDL_SHIM_ACT=kill DDL_SHIM_AT=30
    ! launch 2 sweep "$scratch/hurt.yaml" || fail "no error"
    unset LD_PRELOAD DDL_SHIM_UNDER DDL_SHIM_ACT DDL_SHIM_AT
    none_left
    grep -q 'ddl-1: no lr is chosen before choose/ddl-1_lr=2e-3 has finished or diverged (it failed: ended by signal 9)' \
        "$scratch/log" || fail "$(cat "$scratch/log")"
    grep -q '"waiting":3,"running":0,"stopped":0,"finished":6,"failed":1,' "$scratch/hurt/sweep.json" ||
        fail "$(cat "$scratch/hurt/sweep.json")"
    launch_ok 2 sweep "$scratch/hurt.yaml" --retry
    same_sweeps calm hurt
}

has_step_20() { grep -qs '"step":20,' "$1/metrics.jsonl"; }

has_checkpoint() {
    for checkpoint in "$1"/checkpoint-*; do
        [ -e "$checkpoint" ] && return 0
    done
    return 1
}

# is_trained_by FOLDER PROCESS: whether the run's process is a child of that one.
is_trained_by() {
    owner=$(sed -n 's/^process \([0-9]*\) .*/\1/p' "$1/.lock" 2>/dev/null) || return 1
    [ -n "$owner" ] && [ "$(awk '{ print $4 }' "/proc/$owner/stat" 2>/dev/null)" = "$2" ]
}

# has_run NAME TEST RANK: whether a run of the rank passes the test and is not finished. The run of a killed rank is stopped
# at once; those of the others may end before the launcher stops their ranks.
has_run() {
    for run in "$scratch/$1"/*; do
        is_trained_by "$run" "$(cat "$scratch/rank.$3" 2>/dev/null)" || continue
        ! "$2" "$run" || [ -e "$run/model.safetensors" ] || return 0
    done
    return 1
}

# interrupted_sweep NAME SIGNAL RANK CHECKPOINT_EVERY TEST: a rank is killed or stopped while a run passes the test: all end,
# and the same command continues.
interrupted_sweep() {
    write_sweep "$1" 6000 "$4"
    in_background launch 2 sweep "$scratch/$1.yaml"
    within 600 has_run "$1" "$5" "$3" || fail "no run: $(cat "$scratch/log")"
    kill -"$2" "$(cat "$scratch/rank.$3")"
    ! wait $job || fail "no error"
    none_left
    launch_ok 2 sweep "$scratch/$1.yaml"
    grep -q 'started, continues after step' "$scratch/log" || fail "$(cat "$scratch/log")"
    grep -q '"finished":10,' "$scratch/$1/sweep.json" || fail "$(cat "$scratch/$1/sweep.json")"
}

check losses losses
check tasks tasks
check errors errors
check interrupted_eval interrupted_eval
check sweeps sweeps
check extended_sweeps extended_sweeps
check killed_candidate killed_candidate
# The launcher kills the other rank a second after it has stopped it: a run whose step takes longer has only the checkpoints
# that it wrote before.
check_full killed_sweep interrupted_sweep killed KILL 1 500 has_checkpoint
check_full killed_root interrupted_sweep root KILL 0 500 has_checkpoint
check_full stopped_sweep interrupted_sweep stopped TERM 1 0 has_step_20
finish
