# Several hosts, connected by TCP: ./dev test-cluster. Hosts are network namespaces (network.sh).
#   sh run.sh PROGRAM SOURCE SCRATCH PLUGIN DDL
# PROGRAM is test.comm.comm, DDL is ddl. Needs root, ip, tc and mpirun.
set -eu
program=$1
source=$2
scratch=$3
ddl=$5
cluster=$2/tests/cluster
. "$source/tests/support/checks.sh"
. "$source/tests/comm/ranks.sh"
. "$source/tests/cluster/network.sh"
need_network
need_mpirun "$4"
export DDL_SOURCE_DIR="$source" DDL_SCRATCH="$scratch" DDL_PROGRAM="$program"
trap network_down EXIT
rm -rf "$scratch"
mkdir -p "$scratch"

# ---- messages ----

# collectives HOSTS RATE DELAY
collectives() {
    trap network_down EXIT
    network_up "$1" "$2" "$3"
    on_hosts "$1" "$program" all >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
    [ "$(grep -c "with $1 ranks" "$scratch/log")" -ge 10 ] || fail "$(cat "$scratch/log")"
}

# A host whose link has a hundredth of the rate of the others: the job is slower, and ends as usual.
slow_host() {
    trap network_down EXIT
    network_up 3 1gbit ""
    slow_down 2 10mbit
    on_hosts 3 "$program" all >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
}

# The limits that tests of a vanished host try one after the other: the message has the host alone if no other rank is later
# than the limit. The longest is less than the 23 s after which mpirun ends the job (network.sh).
limits="3 9 18"

# Whether a condition holds or the job has ended, as it does if the limit is too short.
or_ended() { "$@" || ! kill -0 "$job" 2>/dev/null; }

# Whether rank 0 has named the vanished host, and only it. names_host WHAT LIMIT
names_host() {
    grep -q "^ddl: rank 0 of .* on host1: rank 1 (host host2) did not reach $1 within $2 s\$" "$scratch/log"
}

# vanished_host HOSTS: the link of host 2 is cut while all exchange gradients.
vanished_host() {
    trap network_down EXIT
    for limit in $limits; do
        forget_ranks
        network_up "$1" 1gbit ""
        DDL_COMM_TIMEOUT=$limit on_hosts "$1" "$program" steps >"$scratch/log" 2>&1 &
        job=$!
        within 600 or_ended started "$1" || fail "not all ranks started: $(cat "$scratch/log")"
        host_down 2
        within 600 ended || fail "ranks are left: $(cat "$scratch/log")"
        ! wait $job || fail "no error"
        ! names_host "the gradients of step .*" "$limit" || return 0
        network_down
    done
    fail "$(cat "$scratch/log")"
}

# ---- training ----

tokens=$source/tests/golden/curve-baseline/tokens.bin
steps=40

# train OUT OPTION...: the arguments of a run whose step sends about 1 MiB.
train() {
    out=$1
    shift
    echo "$ddl train --model ddl-cc-ec --size micro --hidden-size 32 --seq 32 --batch 2 --global-batch 8 --vocab-size 8192" \
        "--train-data $tokens --val-data none --threads 1 --steps $steps --warmup 4 --lr 1e-3 --checkpoint-every 10" \
        "--log-every 1 --comm-bucket 65536 --out $scratch/$out $*"
}

# The run of as many ranks on one host, to compare with.
reference() {
    ! [ -e "$scratch/reference-$1/model.safetensors" ] || return 0
    # shellcheck disable=SC2046,SC2086 # words
    $mpirun -n "$1" $(train "reference-$1") >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
}

same_run() {
    cmp "$scratch/$1/model.safetensors" "$scratch/$2/model.safetensors"
    cmp "$scratch/$1/checkpoint-$steps/optimizer.safetensors" "$scratch/$2/checkpoint-$steps/optimizer.safetensors"
}

# training HOSTS RATE: the bits of ranks on one host.
training() {
    trap network_down EXIT
    reference "$1"
    network_up "$1" "$2" ""
    # shellcheck disable=SC2046 # words
    on_hosts "$1" $(train "hosts-$1-$2" --overwrite) >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
    same_run "reference-$1" "hosts-$1-$2"
}

slow_host_in_training() {
    trap network_down EXIT
    reference 2
    network_up 2 1gbit ""
    slow_down 2 20mbit
    # shellcheck disable=SC2046
    on_hosts 2 $(train slow) >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
    same_run reference-2 slow
}

steps_logged() { [ "$(wc -l 2>/dev/null <"$scratch/$1/metrics.jsonl" || echo 0)" -gt "$2" ]; }

# vanish_in_training HOSTS LIMIT: the link of host 2 is cut after step 15, in a step that takes a second. Fails if the
# message is not that of the vanished host.
vanish_in_training() {
    rm -rf "$scratch/vanished-$1"
    network_up "$1" 1gbit ""
    for host in $(seq "$1"); do
        slow_down "$host" 40mbit
    done
    # shellcheck disable=SC2046
    on_hosts "$1" $(train "vanished-$1" --comm-timeout "$2") >"$scratch/log" 2>&1 &
    job=$!
    within 600 or_ended steps_logged "vanished-$1" 15 || fail "no steps: $(cat "$scratch/log")"
    host_down 2
    within 600 none_on_hosts "$(basename "$ddl")" || fail "ranks are left: $(cat "$scratch/log")"
    ! wait $job || fail "no error"
    network_down
    names_host ".*step [0-9]*" "$2"
}

# All ranks end, the others name the vanished host, and the resumed run has the bits of the undisturbed one.
vanished_host_in_training() {
    trap network_down EXIT
    reference "$1"
    named=no
    for limit in $limits; do
        [ $named = yes ] || ! vanish_in_training "$1" "$limit" || named=yes
    done
    [ $named = yes ] || fail "$(cat "$scratch/log")"
    network_up "$1" 1gbit ""
    # shellcheck disable=SC2046
    on_hosts "$1" $(train "vanished-$1" --resume) >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
    same_run "reference-$1" "vanished-$1"
}

for hosts in 2 4; do
    for rate in 1gbit 10gbit; do
        check "hosts_${hosts}_$rate" collectives $hosts $rate ""
    done
done
if can_delay; then
    check hosts_2_1gbit_1ms collectives 2 1gbit 1ms
else
    skip hosts_2_1gbit_1ms "the kernel has no netem: latency cannot be set"
fi
check slow_host slow_host
for hosts in 2 4; do
    check "vanished_host_of_$hosts" vanished_host $hosts
done
for hosts in 2 4; do
    for rate in 1gbit 10gbit; do
        check "training_on_${hosts}_$rate" training $hosts $rate
    done
done
check slow_host_in_training slow_host_in_training
for hosts in 2 4; do
    check "vanished_host_in_training_of_$hosts" vanished_host_in_training $hosts
done
finish
