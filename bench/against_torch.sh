#!/bin/sh
# Compares ddl with PyTorch on this machine: runs training steps of the same models and sizes alternately, several times,
# and prints the ratio of the medians.
#
#   bench/against_torch.sh [--models "baseline ddl-cc-ec" | --models all] [--size mini] [--batch 2] [--seq 512]
#                          [--mode eager|compile] [--dtype f32|bf16] [--recompute elementwise|none|block] [--rounds 3] [--steps 8]
#
# PyTorch keeps all activations, as ddl does with --recompute none. The sizes are torch_peer.py's: mini, small (with
# --batch 1 --seq 1024 as the paper's context), tiny. PYTHON is a Python interpreter with torch; ddl does not depend
# on PyTorch. Run it on an idle machine.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

python=${PYTHON:-python3}
ddl=${DDL:-build/release/ddl}
models="baseline ddl-cc-ec" size=mini batch=2 seq=512 mode=eager dtype=f32 recompute=elementwise rounds=3 steps=8
take_options "--models --size --batch --seq --mode --dtype --recompute --rounds --steps" "$@"
[ "$models" != all ] || models="baseline ddl-1 ddl-tc ddl-tc-ec ddl-cc ddl-cc-ec ddl-mix ddl-mix-ec"
[ "$steps" -gt 2 ] || { echo "$0: --steps: expected at least 3: the first two steps of PyTorch are warmup" >&2; exit 2; }
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
"$python" -c 'import torch' 2>/dev/null || {
    echo "$0: $python has no torch. To install it (several hundred megabytes; the CPU build is sufficient):" >&2
    echo "  python3 -m venv peers && peers/bin/pip install torch && PYTHON=peers/bin/python $0 ..." >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
processor
echo "size $size, batch $batch x $seq, $dtype, PyTorch $mode, recompute $recompute, $rounds rounds of $steps steps"
printf '%-12s %12s %12s %8s %12s %12s %8s\n' model "torch tok/s" "ddl tok/s" ratio "torch GiB" "ddl GiB" ratio
for model in $models; do
    round=0
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        "$python" bench/peers/torch_peer.py --model "$model" --size "$size" --batch "$batch" --seq "$seq" --mode "$mode" \
            --dtype "$dtype" --steps "$steps" >"$work/torch"
        "$ddl" bench step --model "$model" --size "$size" --batch "$batch" --seq "$seq" --dtype "$dtype" \
            --recompute "$recompute" --steps "$((steps - 2))" --warmup 2 --no-roofline --json >"$work/ddl"
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
