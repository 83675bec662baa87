#!/bin/sh
# Prints, as a Markdown table, what a training step of each named model needs on a device: operations, traffic, and the
# time that `ddl bench step --device-model` predicts from them, at each size.
#
#   bench/device.sh [--device "3.0TB/s 790TFLOP/s 1.5us"] [--sizes "small medium"] [--models "baseline ddl-1 ..."]
#                   [--batch 32] [--seq 1024] [--dtype bf16|f32] [--reference baseline]
#
# The last column of a size is the predicted speed relative to the reference's. Nothing is computed: it takes a second.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

ddl=${DDL:-build/release/ddl}
device="3.0TB/s 790TFLOP/s 1.5us" sizes="small medium" models="" batch=32 seq=1024 dtype=bf16 reference=baseline
take_options "--device --sizes --models --batch --seq --dtype --reference" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
[ -n "$models" ] || models=$("$ddl" info | awk '/^models/ { on = 1; next } /^[^ ]/ { on = 0 } on { print $1 }')

# step SIZE MODEL: TFLOP, GB, milliseconds and tokens per second
step() {
    "$ddl" bench step --size "$1" --model "$2" --batch "$batch" --seq "$seq" --dtype "$dtype" --device-model "$device" --json |
        awk '{
            while (match($0, /"op": "[^}]*/)) {
                n = split(substr($0, RSTART, RLENGTH), field, /[:,]/)
                for (i = 1; i < n; i++) {
                    if (field[i] ~ /"flops"/) flops += field[i + 1]
                    if (field[i] ~ /"bytes"/) bytes += field[i + 1]
                }
                rest = substr($0, RSTART + RLENGTH)
                head = head substr($0, 1, RSTART)
                $0 = rest
            }
            match(head, /"predicted_step_s": [0-9.e+-]*/)
            seconds = substr(head, RSTART + 20, RLENGTH - 20)
            print flops / 1e12, bytes / 1e9, 1e3 * seconds, '"$batch * $seq"' / seconds
        }'
}

printf '| model |'
for size in $sizes; do printf ' %s: TFLOP | GB | ms | tokens/s | / %s |' "$size" "$reference"; done
printf '\n|---|'
for size in $sizes; do printf -- '---|---|---|---|---|'; done
echo
for model in $models; do
    printf '| `%s` |' "$model"
    for size in $sizes; do
        { step "$size" "$model"; step "$size" "$reference"; } |
            awk 'NR == 1 { split($0, own, " ") }
                 END { printf " %.1f | %.0f | %.0f | %d | %.2f |", own[1], own[2], own[3], 100 * int(own[4] / 100 + 0.5), own[4] / $4 }'
    done
    echo
done
