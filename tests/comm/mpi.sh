# Ranks as processes: the collectives with one to four, and what is left of a job in which a rank fails.
#   sh mpi.sh PROGRAM SOURCE SCRATCH DDL [PLUGIN]
# PROGRAM is test.comm.comm, DDL is ddl. DDL_MPIRUN (default: mpirun --oversubscribe) starts the ranks.
set -eu
program=$1
. "$2/tests/support/checks.sh"
. "$2/tests/comm/ranks.sh"
scratch=$3
ddl=$4
need_mpirun "${5:-}"
export DDL_SOURCE_DIR="$2" DDL_SCRATCH="$scratch" DDL_PROGRAM="$program"

collectives() {
    $mpirun -n "$1" "$program" all >"$scratch/all.$1" 2>&1 || { cat "$scratch/all.$1"; exit 1; }
    [ "$(grep -c "with $1 ranks" "$scratch/all.$1")" -ge 10 ] || fail "output: $(cat "$scratch/all.$1")"
}

# failing HOW: rank 1 of 3 fails while the others wait for it; the job ends, with an error.
failing() {
    forget_ranks
    # shellcheck disable=SC2086 # a command and its options
    ! timeout -k 5 600 $mpirun -n 3 "$program" "$1" >"$scratch/log" 2>&1 || fail "$1: no error"
    started 3 || fail "not all ranks started: $(cat "$scratch/log")"
    none_left
}

# The message has the rank that hangs alone if the others are not later than the limit: on a busy machine a longer one is tried.
hanging_rank() {
    for limit in 2 8 32 128; do
        export DDL_COMM_TIMEOUT=$limit
        failing stop
        ! grep -q "^ddl: rank 0 of 3 on .*: rank 1 (host .*) did not reach the gradients of step 120 within $limit s\$" \
            "$scratch/log" || return 0
    done
    fail "$(cat "$scratch/log")"
}

# A message of another size than expected ends the job, and is not read beyond its end.
other_sizes() {
    for size in short long; do
        found=4
        [ $size = short ] || found="more"
        forget_ranks
        # shellcheck disable=SC2086
        ! timeout -k 5 600 $mpirun -n 2 "$program" $size >"$scratch/log" 2>&1 || fail "$size: no error"
        grep -q "^ddl: rank 0 of 2 on .*: step 7: message of rank 1 (host .*): expected 8 bytes, found $found: " \
            "$scratch/log" || fail "$(cat "$scratch/log")"
        none_left
    done
}

# Rank 1 stops between its connection to the launcher and that to the other ranks.
unfinished_start() {
    forget_ranks
    # shellcheck disable=SC2086
    ! DDL_COMM_TIMEOUT=2 timeout -k 5 120 $mpirun -n 2 "$program" initialize >"$scratch/log" 2>&1 || fail "no error"
    grep -q '^ddl: rank 0 of 2 on .*: a rank did not reach the start of the program within 2 s$' "$scratch/log" ||
        fail "$(cat "$scratch/log")"
    none_left
}

# Rank 1 never begins MPI.
missing_start() {
    status=0
    # shellcheck disable=SC2086
    DDL_COMM_TIMEOUT=2 timeout -k 5 120 $mpirun -n 1 "$ddl" bench comm : -n 1 sleep 3600 >"$scratch/log" 2>&1 || status=$?
    [ $status -ne 0 ] && [ $status -ne 124 ] || fail "status $status: $(cat "$scratch/log")"
    grep -q '^ddl: a rank on .*: another rank did not reach the start of the program within 2 s$' "$scratch/log" ||
        fail "$(cat "$scratch/log")"
}

# Ranks that run different commands: one message, which has both.
different_commands() {
    status=0
    # shellcheck disable=SC2086
    timeout -k 5 600 $mpirun -n 1 "$ddl" bench comm : -n 1 "$ddl" eval "$scratch" --text /dev/null >"$scratch/log" 2>&1 ||
        status=$?
    [ $status -eq 2 ] || fail "status $status: $(cat "$scratch/log")"
    [ "$(grep -c '^ddl: ' "$scratch/log")" -eq 1 ] || fail "$(cat "$scratch/log")"
    grep -q '^ddl: rank 1 of 2 (host .*): command: the ranks differ: expected bench comm as on rank 0, found eval$' \
        "$scratch/log" || fail "$(cat "$scratch/log")"
}

aborting_rank() {
    failing abort
    grep -q '^ddl: rank 1 of 3 on .*: cannot continue$' "$scratch/log" || fail "$(cat "$scratch/log")"
}

# ddl bench comm: rank 0 alone prints the report, or the error.
benchmark() {
    $mpirun -n 2 "$ddl" bench comm --bytes 65536 --steps 2 --json >"$scratch/report" 2>"$scratch/log" || fail "$(cat "$scratch/log")"
    [ "$(wc -l <"$scratch/report")" -eq 1 ] || fail "$(cat "$scratch/report")"
    grep -q '"all_gather_latency_us"' "$scratch/report" || fail "$(cat "$scratch/report")"
    ! $mpirun -n 2 "$ddl" bench comm --steps 0 >"$scratch/report" 2>"$scratch/log" || fail "no error"
    [ "$(grep -c '^ddl: .*steps' "$scratch/log")" -eq 1 ] || fail "$(cat "$scratch/log")"
}

# Processes that the launcher did not connect, as srun without an MPI plugin starts them.
unconnected() {
    ! FLUX_JOB_SIZE=3 "$program" all >"$scratch/log" 2>&1 || fail "no error"
    grep -q 'FLUX_JOB_SIZE: the launcher and MPI do not fit: expected 3 processes, found 1' "$scratch/log" ||
        fail "$(cat "$scratch/log")"
}

ranks_tried="1 2 3 4"
! is_sample || ranks_tried="2 3"
for ranks in $ranks_tried; do
    check "ranks_$ranks" collectives "$ranks"
done
check hanging_rank hanging_rank
check other_sizes other_sizes
check unfinished_start unfinished_start
check missing_start missing_start
check different_commands different_commands
check_full aborting_rank aborting_rank
check_full killed_rank failing kill
check_full exiting_rank failing exit
check benchmark benchmark
check unconnected_ranks unconnected
finish
