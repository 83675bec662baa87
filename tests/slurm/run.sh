# The job scripts of recipes/slurm, with programs in place of Slurm's: a job that is stopped before its time limit is
# queued again, and ends with the bits of a job that was not stopped.
#   sh run.sh PROGRAM SOURCE SCRATCH [PLUGIN]
set -eu
program=$1
source=$2
scratch=$3
plugin=${4:-}
. "$source/tests/support/checks.sh"
. "$source/tests/comm/ranks.sh"
rm -rf "${scratch:?}"/*
mkdir "$scratch/bin"
ln -s "$program" "$scratch/bin/ddl"

# srun passes SIGUSR1 on to its tasks, and kills them on SIGTERM. RANKS > 1: the tasks are ranks. STEP_STATUS: its status
# instead of 3, as if it had killed a task after the first one exited with 3 (--kill-on-bad-exit).
cat >"$scratch/bin/srun" <<'EOF'
#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
[ "${RANKS:-1}" -eq 1 ] || set -- $MPIRUN -n "$RANKS" "$@"
"$@" &
tasks=$!
trap 'kill -USR1 $tasks; again=yes' USR1
trap 'kill -KILL $tasks' TERM
while :; do
    again=no status=0
    wait $tasks || status=$?
    [ $again = yes ] || break
done
[ $status -ne 3 ] || status=${STEP_STATUS:-3}
exit $status
EOF
cat >"$scratch/bin/scontrol" <<'EOF'
#!/bin/sh
echo "$@" >>"$REQUEUED"
EOF
chmod +x "$scratch/bin/srun" "$scratch/bin/scontrol"

export PATH="$scratch/bin:$PATH" REQUEUED="$scratch/requeued" SLURM_JOB_ID=17 SLURM_CPUS_PER_TASK=1
cd "$source"

# Syntax, and options: all before the first command, each one of sbatch's.
syntax() {
    for script in recipes/slurm/*.sh; do
        sh -n "$script"
        ! command -v bash >/dev/null 2>&1 || bash -n "$script"
        awk '/^#SBATCH/ && code { exit 1 } !/^#/ { code = 1 }' "$script" || fail "$script: #SBATCH after a command"
        sed -n 's/^#SBATCH --\([a-z-]*\)=\{0,1\}.*/\1/p' "$script" | while read -r option; do
            case $option in
            job-name | nodes | ntasks | ntasks-per-node | gpus-per-node | cpus-per-task | time | signal | requeue | open-mode | output) ;;
            *) fail "$script: unknown option --$option" ;;
            esac
        done
    done
}

# job SCRIPT OUT OPTION...: a job of 60 steps, which take some tens of milliseconds each.
job() {
    script=$1
    out=$2
    shift 2
    cat >"$scratch/recipe.yaml" <<EOF
model: ddl-cc-ec
size: micro
seq: 64
batch: 2
global_batch: 4
vocab_size: 8192
steps: 60
warmup: 4
lr: 1e-3
train_data: $source/tests/golden/curve-baseline/tokens.bin
val_data: none
sample_every: 0
log_every: 1
checkpoint_every: 0
EOF
    cd "$scratch"
    export DDL_SLURM="$source/recipes/slurm"
    exec sh "$DDL_SLURM/$script.sh" "$scratch/recipe.yaml" "$scratch/$out" "$@" >"$scratch/$out.log" 2>&1
}

steps_logged() { [ "$(wc -l 2>/dev/null <"$scratch/$1/metrics.jsonl" || echo 0)" -gt "$2" ]; }

# stopped SCRIPT OUT SIGNAL: sends the job script a signal in the middle of the run; its status is that of a stopped run.
stopped() {
    rm -f "$REQUEUED"
    (job "$1" "$2") &
    job=$!
    within 600 steps_logged "$2" 10 || fail "no steps: $(cat "$scratch/$2.log")"
    kill -"$3" $job
    status=0
    wait $job || status=$?
    [ $status -eq "${STEP_STATUS:-3}" ] || fail "status $status: $(cat "$scratch/$2.log")"
    ! [ -e "$scratch/$2/model.safetensors" ] || fail "not stopped in time: $(cat "$scratch/$2.log")"
}

# requeued SCRIPT OUT: stopped before the time limit, queued again once, and resumed as Slurm would start it again.
requeued() {
    (job "$1" "$2-whole") || fail "$(cat "$scratch/$2-whole.log")"
    stopped "$1" "$2" USR1
    [ "$(cat "$REQUEUED")" = "requeue 17" ] || fail "$(cat "$REQUEUED" "$scratch/$2.log")"
    (job "$1" "$2") || fail "$(cat "$scratch/$2.log")"
    [ "$(wc -l <"$REQUEUED")" -eq 1 ] || fail "queued again after the end"
    cmp "$scratch/$2-whole/model.safetensors" "$scratch/$2/model.safetensors"
}

# SIGTERM stops the run with a checkpoint too; the job is queued again only if that is wanted.
terminated() {
    stopped one_node terminated TERM
    ! [ -e "$REQUEUED" ] || fail "queued again: $(cat "$scratch/terminated.log")"
    rm -r "$scratch/terminated"
    export requeue_on="USR1 TERM"
    stopped one_node terminated TERM
    [ "$(cat "$REQUEUED")" = "requeue 17" ] || fail "not queued again: $(cat "$scratch/terminated.log")"
}

# srun kills the tasks that exit after the first: the job is queued again if there is a checkpoint.
killed_tasks() {
    export STEP_STATUS=137 RANKS=1
    stopped one_node killed USR1
    [ "$(cat "$REQUEUED")" = "requeue 17" ] || fail "not queued again: $(cat "$scratch/killed.log")"
    # shellcheck disable=SC2016 # expanded by srun
    sed -i 's:^exit .*:rm -rf "$WITHOUT"/checkpoint-*; &:' "$scratch/bin/srun"
    export WITHOUT="$scratch/without"
    stopped one_node without USR1
    ! [ -e "$REQUEUED" ] || fail "queued again without a checkpoint: $(cat "$scratch/without.log")"
}

# A run that is killed without a signal to the script is not queued again.
killed_run() {
    rm -f "$REQUEUED"
    (job one_node killed-run --checkpoint-every 1) &
    job=$!
    within 600 steps_logged killed-run 10 || fail "no steps: $(cat "$scratch/killed-run.log")"
    kill -KILL "$(sed -n 's/^process \([0-9]*\) .*/\1/p' "$scratch/killed-run/.lock")"
    status=0
    wait $job || status=$?
    [ $status -eq 137 ] || fail "status $status: $(cat "$scratch/killed-run.log")"
    ! [ -e "$REQUEUED" ] || fail "queued again: $(cat "$scratch/killed-run.log")"
}

# A job that fails is not queued again.
failed() {
    rm -f "$REQUEUED"
    status=0
    (job one_node failed --steps none) || status=$?
    [ $status -eq 2 ] || fail "status $status: $(cat "$scratch/failed.log")"
    ! [ -e "$REQUEUED" ] || fail "queued again"
}

# The scripts for GPUs, with the ranks on the CPU: they require that devices exchange, which DDL_EXCHANGE changes.
gpus() {
    ! (job "$1_gpus" "$1-device" --backend cpu --steps 4) || fail "no error"
    grep -q '^ddl: DDL_EXCHANGE: device: rank 0 .*: backend cpu has no exchange between devices$' "$scratch/$1-device.log" ||
        fail "$(cat "$scratch/$1-device.log")"
    (DDL_EXCHANGE=host job "$1_gpus" "$1-host" --backend cpu --steps 4) || fail "$(cat "$scratch/$1-host.log")"
    [ -e "$scratch/$1-host/model.safetensors" ] || fail "no model"
}

check syntax syntax
check one_node requeued one_node one
check_full terminated terminated
check_full killed_run killed_run
check failed failed
mpirun=${DDL_MPIRUN:-mpirun --oversubscribe}
if [ -n "$plugin" ] && command -v "${mpirun%% *}" >/dev/null 2>&1; then
    need_mpirun "$plugin"
    export RANKS=2 MPIRUN="$mpirun"
    check_full several_nodes requeued several_nodes several
    check four_gpus gpus four
    check_full eight_gpus gpus eight
else
    skip several_nodes "no MPI plugin, or no ${mpirun%% *}"
fi
check_full killed_tasks killed_tasks # changes srun
finish
