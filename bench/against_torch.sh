#!/bin/sh
# ddl beside PyTorch on this machine: training steps of the same models and sizes, in turn, several times, and the ratio
# of their medians.
#
#   bench/against_torch.sh [--models "baseline ddl-cc-ec"] [--size mini] [--batch 2] [--seq 512] [--mode eager|compile]
#                          [--rounds 3] [--steps 8]
#
# PYTHON names a Python that has torch (PyTorch is no dependency of ddl: `python3 -m venv peers && peers/bin/pip install
# torch`, then PYTHON=peers/bin/python). Run it on a quiet machine.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
ddl=${DDL:-build/release/ddl}
models="baseline ddl-cc-ec" size=mini batch=2 seq=512 mode=eager rounds=3 steps=8
while [ $# -gt 0 ]; do
    case $1 in
    --models | --size | --batch | --seq | --mode | --rounds | --steps)
        [ $# -gt 1 ] || { echo "$0: $1 needs a value" >&2; exit 2; }
        eval "${1#--}=\$2"
        shift 2
        ;;
    *) echo "$0: unknown option '$1'" >&2; exit 2 ;;
    esac
done
[ -x "$ddl" ] || { echo "$0: no $ddl: run ./dev build first" >&2; exit 1; }
"$python" -c 'import torch' 2>/dev/null || { echo "$0: $python has no torch; see the head of this script" >&2; exit 1; }

# field NAME: the number of that name in a JSON object on standard input
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -m1 'model name' /proc/cpuinfo 2>/dev/null | sed 's/.*: //' || true
echo "size $size, batch $batch x $seq, float32, PyTorch $mode, $rounds rounds of $steps steps"
printf '%-12s %12s %12s %8s %12s %12s %8s\n' model "torch tok/s" "ddl tok/s" ratio "torch GiB" "ddl GiB" ratio
for model in $models; do
    round=0
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        "$python" bench/peers/torch_peer.py --model "$model" --size "$size" --batch "$batch" --seq "$seq" --mode "$mode" \
            --steps "$steps" >"$work/torch"
        "$ddl" bench step --model "$model" --size "$size" --batch "$batch" --seq "$seq" --steps "$steps" --json >"$work/ddl"
        for side in torch ddl; do
            field tokens_per_s <"$work/$side" >>"$work/$side.$model.speed"
            field peak_gib <"$work/$side" >>"$work/$side.$model.memory"
        done
    done
    ts=$(median <"$work/torch.$model.speed") ds=$(median <"$work/ddl.$model.speed")
    tm=$(median <"$work/torch.$model.memory") dm=$(median <"$work/ddl.$model.memory")
    awk -v m="$model" -v ts="$ts" -v ds="$ds" -v tm="$tm" -v dm="$dm" \
        'BEGIN { printf "%-12s %12.0f %12.0f %8.2f %12.3f %12.3f %8.2f\n", m, ts, ds, ds / ts, tm, dm, dm / tm }'
done
