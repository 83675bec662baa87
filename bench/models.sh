#!/bin/sh
# Compares models with a reference model: runs training steps of them several times, and prints the speed, FLOPs and
# memory of each as a row of a Markdown table.
#
#   bench/models.sh [--models "hyper mhc ..."] [--reference baseline] [--size mini] [--batch 2] [--seq 512]
#                   [--dtype f32|bf16] [--recompute elementwise|none|block] [--match NAME] [--rounds 3] [--steps 4]
#                   [--runs in-turn|together]
#
# Without --match the models have the MLP of the size, and differ in parameters; with it, their MLPs have the widths with
# which they have as many parameters as the named model. With --runs in-turn each run has all cores. With together a
# model and the reference run at the same time, each on half of the cores, which are exchanged in every second round:
# what else the machine does affects both. Use an even number of rounds then.
#
# The speed ratio is the median over rounds of a model's tokens per second divided by those of the reference in the same
# round. "own ops" is the share of a step's time in ops that the reference does not call, median over rounds: it depends
# less on the load of the machine than the ratio does. Memory is that of the last round. Run it on an idle machine.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

ddl=${DDL:-build/release/ddl}
models="hyper mhc laurel attnres attnres-block denseformer resformer ddl-1 ddl-cc-ec ddl-2step" reference=baseline
size=mini batch=2 seq=512 dtype=f32 recompute=elementwise match="" rounds=3 steps=4 runs=in-turn
take_options "--models --reference --size --batch --seq --dtype --recompute --match --rounds --steps --runs" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }

case " $models " in *" $reference "*) echo "$0: --models: $reference is the reference" >&2; exit 2 ;; esac
[ "$rounds" -gt 0 ] || { echo "$0: --rounds: expected at least 1" >&2; exit 2; }
half=$(($(nproc) / 2))
case $runs in
in-turn) ;;
together) [ "$half" -gt 0 ] || { echo "$0: --runs together: expected at least two cores" >&2; exit 2; } ;;
*) echo "$0: --runs: expected in-turn or together, found $runs" >&2; exit 2 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
processor
echo "size $size${match:+, parameters of $match}, batch $batch x $seq, $dtype, recompute $recompute"
echo "$rounds rounds of $steps steps, $runs"

# run MODEL [HALF]: writes the report of a model, on a half of the cores (0 or 1) or on all
run() {
    cores="" threads=0
    [ $# -eq 1 ] || cores="taskset -c $((half * $2))-$((half * $2 + half - 1))" threads=$half
    # shellcheck disable=SC2086
    $cores "$ddl" bench step --model "$1" --size "$size" --batch "$batch" --seq "$seq" --dtype "$dtype" \
        --recompute "$recompute" --match-parameters "$match" --steps "$steps" --warmup 1 --threads "$threads" \
        --no-roofline --ops --json >"$work/$1.report"
}

# take MODEL: adds the figures of its report, and those relative to the report of the reference
take() {
    field tokens_per_s <"$work/$1.report" | tee -a "$work/$1.speed" >"$work/speed"
    field tokens_per_s <"$work/$reference.report" | paste "$work/speed" - | awk '{ print $1 / $2 }' >>"$work/$1.ratio"
    for name in "$reference" "$1"; do
        profiled "$work/$name.report" >"$work/$name.ops"
    done
    awk 'NR == FNR { common[$1]; next } { all += $2 } !($1 in common) { own += $2 } END { print own / all }' \
        "$work/$reference.ops" "$work/$1.ops" >>"$work/$1.own"
    for key in peak_gib flops parameters; do
        field "$key" <"$work/$1.report" >"$work/$1.$key"
    done
}

round=0
while [ "$round" -lt "$rounds" ]; do
    [ "$runs" = together ] || { run "$reference"; take "$reference"; }
    for model in $models; do
        if [ "$runs" = together ]; then
            run "$reference" $((round % 2)) &
            run "$model" $((1 - round % 2))
            wait $!
            take "$reference"
        else
            run "$model"
        fi
        take "$model"
    done
    round=$((round + 1))
done

# relative MODEL KEY: divided by the figure of the reference
relative() { paste "$work/$1.$2" "$work/$reference.$2" | awk '{ printf "%.2f", $1 / $2 }'; }
echo "| model | parameters | FLOPs / $reference | tokens/s | / $reference | range | own ops | peak GiB | / $reference |"
echo "|---|---|---|---|---|---|---|---|---|"
for model in $reference $models; do
    printf '| %s | %.2f M | %s | %.0f | %.2f | %s | %s | %.3f | %s |\n' "$model" \
        "$(awk '{ print $1 / 1e6 }' "$work/$model.parameters")" "$(relative "$model" flops)" \
        "$(median <"$work/$model.speed")" "$(median <"$work/$model.ratio")" \
        "$(sort -n "$work/$model.ratio" | awk 'NR == 1 { first = $1 } END { printf "%.2f to %.2f", first, $1 }')" \
        "$(median <"$work/$model.own" | awk '{ printf "%.1f %%", 100 * $1 }')" \
        "$(cat "$work/$model.peak_gib")" "$(relative "$model" peak_gib)"
done
