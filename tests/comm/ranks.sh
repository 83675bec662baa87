# shellcheck shell=sh
# For tests with ranks as processes, each of which writes its process id to $scratch/rank.<rank>.

# need_mpirun PLUGIN: sets $mpirun, from DDL_MPIRUN or the default, and the plugin of programs that it starts; ends the test
# with a message where there is no plugin or no mpirun.
need_mpirun() {
    mpirun=${DDL_MPIRUN:-mpirun --oversubscribe}
    if [ -z "$1" ]; then
        skip mpi "this tree has no MPI plugin (install libopenmpi-dev)"
        exit 77
    fi
    if ! command -v "${mpirun%% *}" >/dev/null 2>&1; then
        skip mpi "${mpirun%% *} is not installed"
        exit 77
    fi
    # Open MPI refuses to run as root otherwise.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DDL_COMM_PLUGIN="$1"
}

forget_ranks() { rm -f "$scratch"/rank.*; }

# run_ranks RANKS COMMAND...: under mpirun. The time limit only ends a job that hangs.
run_ranks() {
    ranks=$1
    shift
    forget_ranks
    # shellcheck disable=SC2016,SC2086 # expanded by the rank's shell; words of the launcher
    timeout -k 5 600 $mpirun -n "$ranks" \
        sh -c 'file=$0/rank.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; echo $$ >"$file-"; mv "$file-" "$file"; exec "$@"' \
        "$scratch" "$@"
}

# in_background COMMAND...: starts a command that calls run_ranks. The process ids of an earlier job are removed before, not
# by the command: what waits for the ranks must not see them.
in_background() {
    forget_ranks
    "$@" &
    job=$!
}

# handles_signals RANK: whether the rank has begun to handle SIGTERM: its threads block it, and one waits for it.
handles_signals() {
    digit=$(sed -n 's/^SigBlk:.*\(.\)...$/\1/p' "/proc/$(cat "$scratch/rank.$1")/status" 2>/dev/null)
    case $digit in [4-7c-f]) return 0 ;; *) return 1 ;; esac
}

# started RANKS
started() { [ "$(find "$scratch" -name 'rank.*[0-9]' | wc -l)" -eq "$1" ]; }

ended() {
    for file in "$scratch"/rank.*[0-9]; do
        ! kill -0 "$(cat "$file")" 2>/dev/null || return 1
    done
}

# within SECONDS COMMAND...: whether the command succeeds in this time.
within() {
    tries=$(($1 * 20))
    shift
    while ! "$@"; do
        [ $tries -gt 0 ] || return 1
        sleep 0.05
        tries=$((tries - 1))
    done
}

# Launchers end before the last of their processes.
none_left() { within 300 ended || fail "ranks are left: $(cat "$scratch/log")"; }
