# shellcheck shell=sh
# Runs a job step, stops it with a checkpoint before the time limit of the job, and requeues the job. Sourced by the job
# scripts of this folder.
#
#   resume_option OUT       prints --resume if the run has begun
#   run_step OUT COMMAND... runs `srun ... ddl train ...`; returns its status
#
# Slurm sends SIGUSR1 to the job script before the time limit (#SBATCH --signal=B:USR1@120) and, where the administrator
# has set PreemptParameters=send_user_signal, before a preemption. It is passed on to srun, which passes it on to the
# ranks: they finish the step, write a checkpoint and exit with status 3. Then the job is requeued. With several ranks
# srun --kill-on-bad-exit=1 kills those that exit after the first one, and its status may be 128 + the number of that signal:
# then the job is requeued if the run has a checkpoint.
#
# SIGTERM (scancel, or a preemption) is passed on as SIGUSR1 as well, because srun kills its tasks on SIGTERM. After a
# SIGTERM this script does not requeue the job: Slurm does that itself after a preemption (PreemptMode=REQUEUE), and a
# canceled job remains canceled. Where preempted jobs are canceled (PreemptMode=CANCEL), set requeue_on="USR1 TERM".
requeue_on=${requeue_on:-USR1}

resume_option() { [ ! -e "$1/recipe.yaml" ] || echo --resume; }

stop_step() {
    echo "SIG$1: stopping the run"
    received="$received $1"
    ! kill -USR1 "$step" 2>/dev/null || interrupted=yes
}

run_step() {
    run=$1
    shift
    received="" interrupted=no
    trap 'stop_step USR1' USR1
    trap 'stop_step TERM' TERM
    "$@" &
    step=$!
    # A signal interrupts wait, with a status that is not that of the step.
    while :; do
        status=0
        wait "$step" || status=$?
        [ $interrupted = yes ] || break
        interrupted=no
    done
    trap - USR1 TERM
    if [ $status -eq 3 ] || { [ $status -gt 128 ] && has_checkpoint "$run"; }; then
        requeue
    fi
    return $status
}

has_checkpoint() {
    for checkpoint in "$1"/checkpoint-*; do
        [ ! -d "$checkpoint" ] || return 0
    done
    return 1
}

# Only after a signal to this script: the status alone can be that of a run that was stopped by hand.
requeue() {
    for signal in $received; do
        case " $requeue_on " in
        *" $signal "*)
            echo "the run is stopped with a checkpoint: requeuing job $SLURM_JOB_ID"
            scontrol requeue "$SLURM_JOB_ID"
            return
            ;;
        esac
    done
}
