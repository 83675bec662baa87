#!/bin/sh
# recipes/paper/hours.sh [--device "3.0TB/s 790TFLOP/s 1.5us"]: a Markdown table of the hours that the runs of small.yaml
# and embedding.yaml take on H100 GPUs, from the predicted time of a step (`ddl bench step --device-model`: a lower bound,
# without data, validation and the exchange between GPUs). Runs of one GPU each divide a sweep among 4 or 8 GPUs.
set -eu
cd "$(dirname "$0")/../.."
ddl=${DDL:-build/release/ddl}
device="3.0TB/s 790TFLOP/s 1.5us"
case $#:${1:-} in
0:) ;;
2:--device) device=$2 ;;
*)
    echo "usage: $0 [--device \"3.0TB/s 790TFLOP/s 1.5us\"]" >&2
    exit 2
    ;;
esac
[ -n "${DDL:-}" ] || [ -x "$ddl" ] || ddl=ddl # installed
command -v "$ddl" >/dev/null || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }

# line SWEEP NAME MODEL STEPS: with the model's predicted tokens per second
line() {
    report=$("$ddl" bench step --size small --model "$3" --batch 32 --seq 1024 --dtype bf16 --device-model "$device" --json)
    speed=$(echo "$report" | sed -n 's/.*"predicted_tokens_per_s": *\([0-9.e+]*\).*/\1/p')
    [ -n "$speed" ] || { echo "$0: $3: no prediction" >&2; exit 1; }
    echo "$1 $2 $speed $4"
}

# Lines of SWEEP MODEL TOKENS/S STEPS. Steps of all runs of a model: in small.yaml 3 of 100,000 and 4 of 5,000, in
# embedding.yaml 16 of 5,000. A model of its own name, or a named model with most of its ops.
lines=$(
    for entry in baseline baseline-normalized:baseline baseline-flops:baseline ddl-1 ddl-1-write \
        ddl-1-linear:ddl-1 ddl-1-linear-write:ddl-1-write ddl-tc ddl-tc-ec ddl-cc ddl-cc-ec ddl-cc-ec-write; do
        line small "${entry%:*}" "${entry#*:}" 320000
    done
    for model in baseline ddl-1 ddl-cc-ec; do
        line embedding "$model" "$model" 80000
    done
)
echo "$lines" | awk 'BEGIN { print "| sweep | model | tokens/s | hours of a run | of all its runs |\n|---|---|---|---|---|" }
    { one = 480 * 1024 * ($1 == "small" ? 100000 : 5000) / $3 / 3600; all = 480 * 1024 * $4 / $3 / 3600
      sum[$1] += all
      printf "| %s | `%s` | %d | %.1f | %.0f |\n", $1, $2, 100 * int($3 / 100 + 0.5), one, all }
    END { for (s in sum)
        printf "| %s | all: 1, 4, 8 GPUs | | | %.0f, %.0f, %.0f |\n", s, sum[s], sum[s] / 4, sum[s] / 8 }'
