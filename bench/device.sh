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
report=$(mktemp)
trap 'rm -f "$report"' EXIT
[ -n "$models" ] || models=$("$ddl" info | awk '/^models/ { on = 1; next } /^[^ ]/ { on = 0 } on { print $1 }')

# sum KEY FILE: of the numbers with that key
sum() { grep -o "\"$1\": [0-9.eE+-]*" "$2" | awk '{ sum += $2 } END { print sum }'; }

# step SIZE MODEL: FLOPs, bytes and seconds
step() {
    "$ddl" bench step --size "$1" --model "$2" --batch "$batch" --seq "$seq" --dtype "$dtype" --device-model "$device" \
        --json >"$report"
    echo "$(sum flops "$report") $(sum bytes "$report") $(field predicted_step_s <"$report")"
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
            awk -v tokens="$((batch * seq))" 'NR == 1 { flops = $1; bytes = $2; seconds = $3 }
                 END { printf " %.1f | %.0f | %.0f | %d | %.2f |", flops / 1e12, bytes / 1e9, 1e3 * seconds,
                              100 * int(tokens / seconds / 100 + 0.5), $3 / seconds }'
    done
    echo
done
