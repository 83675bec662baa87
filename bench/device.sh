#!/bin/sh
# Prints, as a Markdown table, what a training step of each named model needs on a device: operations, traffic, the time
# that `ddl bench step --device-model` predicts from them, and the memory that a dry run plans, at each size.
#
#   bench/device.sh [--device "3.0TB/s 790TFLOP/s 1.5us"] [--sizes "small medium"] [--models "baseline ddl-1 ..."]
#                   [--batch 32] [--seq 1024] [--dtype bf16|f32] [--reference baseline]
#
# MFU is the share of the device's rate that the model's operations reach. The speed and the memory of a step follow
# relative to the reference's. Memory is planned for a CUDA device: where there is no plugin for it,
# `./dev cuda-sim bench/device.sh`; without either it is left out. Nothing is computed: it takes seconds.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

ddl=${DDL:-build/release/ddl}
device="3.0TB/s 790TFLOP/s 1.5us" sizes="small medium" models="" batch=32 seq=1024 dtype=bf16 reference=baseline
take_options "--device --sizes --models --batch --seq --dtype --reference" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
report=$(mktemp)
trap 'rm -f "$report"' EXIT
[ -n "$models" ] || models=$(named_models "$ddl")

# sum KEY FILE: of the numbers with that key
sum() { grep -o "\"$1\": [0-9.eE+-]*" "$2" | awk '{ sum += $2 } END { print sum }'; }

# Without a plugin for CUDA no memory is planned; other errors are shown.
has_plan=true
"$ddl" train --dry-run --backend cuda --device-memory 1000 --model baseline --size micro --quiet >/dev/null 2>"$report" || {
    grep -q "unknown backend 'cuda'" "$report" || { cat "$report" >&2; exit 1; }
    has_plan=false
}

# step SIZE MODEL: FLOPs, bytes, seconds, MFU and bytes of memory (0: not known)
step() {
    "$ddl" bench step --size "$1" --model "$2" --batch "$batch" --seq "$seq" --dtype "$dtype" --device-model "$device" \
        --json >"$report"
    figures="$(sum flops "$report") $(sum bytes "$report") $(field predicted_step_s <"$report") \
        $(field predicted_flops_share <"$report")"
    memory=0
    if $has_plan; then
        "$ddl" train --dry-run --backend cuda --device-memory 1000 --size "$1" --model "$2" --batch "$batch" --seq "$seq" \
            --dtype "$dtype" --json >"$report"
        memory=$(sed -n 's/.*"memory":{[^}]*"total":\([0-9]*\).*/\1/p' "$report")
    fi
    echo "$figures $memory"
}

printf '| model |'
for size in $sizes; do
    printf ' %s: TFLOP | GB | ms | tokens/s | MFU | speed / %s | GiB | memory / %s |' "$size" "$reference" "$reference"
done
printf '\n|---|'
for size in $sizes; do printf -- '---|---|---|---|---|---|---|---|'; done
echo
for model in $models; do
    printf '| `%s` |' "$model"
    for size in $sizes; do
        { step "$size" "$model"; step "$size" "$reference"; } |
            awk -v tokens="$((batch * seq))" '
                NR == 1 { flops = $1; bytes = $2; seconds = $3; mfu = $4; memory = $5 }
                END {
                    printf " %.1f | %.0f | %.0f | %d | %.2f | %.2f |", flops / 1e12, bytes / 1e9, 1e3 * seconds,
                        100 * int(tokens / seconds / 100 + 0.5), mfu, $3 / seconds
                    if (memory)
                        printf " %.1f | %.2f |", memory / 1073741824, memory / $5
                    else
                        printf " | |"
                }'
    done
    echo
done
