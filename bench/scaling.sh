#!/bin/sh
# Measures training on one, two and four hosts, which are network namespaces of this machine (tests/cluster/network.sh),
# and prints the tables of docs/scaling.md in Markdown, beside the model of python/scaling_model.py. Takes about five
# minutes on two cores. Needs root, ip, tc, mpirun and python3; run it on an idle machine after ./dev build.
#
#   bench/scaling.sh [--rounds 3] [--steps 4] [--size mini] [--vocab_size 8192] [--keep FOLDER]
#
# A step has 4 x 512 tokens, one thread per host; the hosts share the cores of the machine. The first step of a run is not
# counted. Settings alternate in each round. --keep: the folder of the runs, which is deleted otherwise.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
cluster=$root/tests/cluster
. tests/support/checks.sh
. tests/cluster/network.sh
. bench/peers/figures.sh

ddl=${DDL:-$root/build/release/ddl}
rounds=3 steps=4 size=mini vocab_size=8192 keep=
take_options "--rounds --steps --size --vocab_size --keep" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
need_network
work=${keep:-$(mktemp -d)}
mkdir -p "$work"
tidy() {
    network_down
    [ -n "$keep" ] || rm -rf "$work"
}
trap tidy EXIT
export DDL_COMM_PLUGIN="${DDL_COMM_PLUGIN:-$(dirname "$ddl")/libddl_mpi.so}"

# train NAME OVERLAP: the command line of a run.
train() {
    echo "$ddl train --quiet --size $size --vocab-size $vocab_size --seq 512 --batch 2 --global-batch 4 --threads 1" \
        "--train-data $root/tests/golden/curve-baseline/tokens.bin --val-data none --steps $steps --log-every 1" \
        "--telemetry-every 0 --checkpoint-every 0 --comm-overlap $2 --out $work/$1 --overwrite"
}

# run COMMAND...: its output is shown if it fails.
run() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }

cat >"$work/settings.json" <<EOF
{"size": "$size", "vocab_size": $vocab_size, "seq": 512, "batch": 2, "global_batch": 4, "cores": $(nproc)}
EOF
for round in $(seq "$rounds"); do
    # shellcheck disable=SC2046 # words
    DDL_COMM=none run $(train "1-none-off-$round" false)
    for gbit in 1 10; do
        for hosts in 2 4; do
            network_up "$hosts" "${gbit}gbit" ""
            for overlap in on off; do
                # shellcheck disable=SC2046
                run on_hosts "$hosts" $(train "$hosts-$gbit-$overlap-$round" "$([ $overlap = on ] && echo true || echo false)")
            done
            if [ "$round" -eq 1 ]; then
                on_hosts "$hosts" "$ddl" bench comm --json >"$work/comm-$hosts-$gbit.json" 2>"$work/log" ||
                    { cat "$work/log" >&2; exit 1; }
            fi
            network_down
        done
    done
done
can_delay || echo "The kernel has no netem: the links have the latency of a bridge, tens of microseconds."
echo "$(processor), $(nproc) cores, size $size, vocabulary $vocab_size, 4 x 512 tokens a step:"
echo
python3 python/scaling_model.py report "$work" --program "$ddl"
