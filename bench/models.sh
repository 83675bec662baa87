#!/bin/sh
# Compares models with a reference model: runs training steps of all of them in turn, several times, and prints the
# speed, FLOPs and memory of each as a row of a Markdown table.
#
#   bench/models.sh [--models "hyper mhc ..."] [--reference baseline] [--size mini] [--batch 2] [--seq 512]
#                   [--dtype f32|bf16] [--recompute elementwise|none|block] [--match NAME] [--rounds 3] [--steps 4]
#
# Without --match the models have the MLP of the size, and differ in parameters; with it, their MLPs have the widths with
# which they have as many parameters as the named model. The speed ratio is the median over rounds of a model's
# tokens per second divided by those of the reference in the same round. "own ops" is the share of a step's time in ops
# that the reference does not call, median over rounds: less than the ratio it depends on the load of the machine.
# Memory is that of the last round. Run it on an idle machine.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

ddl=${DDL:-build/release/ddl}
models="hyper mhc laurel denseformer resformer ddl-1 ddl-cc-ec ddl-2step" reference=baseline
size=mini batch=2 seq=512 dtype=f32 recompute=elementwise match="" rounds=3 steps=4
take_options "--models --reference --size --batch --seq --dtype --recompute --match --rounds --steps" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }

case " $models " in *" $reference "*) echo "$0: --models: $reference is the reference" >&2; exit 2 ;; esac
[ "$rounds" -gt 0 ] || { echo "$0: --rounds: expected at least 1" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
processor
echo "size $size${match:+, parameters of $match}, batch $batch x $seq, $dtype, recompute $recompute"
echo "$rounds rounds of $steps steps"
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    for model in $reference $models; do
        "$ddl" bench step --model "$model" --size "$size" --batch "$batch" --seq "$seq" --dtype "$dtype" \
            --recompute "$recompute" --match-parameters "$match" --steps "$steps" --warmup 1 --no-roofline --ops \
            --json >"$work/report"
        speed=$(field tokens_per_s <"$work/report")
        [ "$model" != "$reference" ] || of_reference=$speed
        echo "$speed" >>"$work/$model.speed"
        echo "$speed $of_reference" | awk '{ print $1 / $2 }' >>"$work/$model.ratio"
        grep -o '"op": "[^"]*", "seconds": [0-9.eE+-]*' "$work/report" | tr -d '",' |
            awk '{ print $2, $4 }' >"$work/$model.ops"
        awk 'NR == FNR { common[$1]; next } { all += $2 } !($1 in common) { own += $2 } END { print own / all }' \
            "$work/$reference.ops" "$work/$model.ops" >>"$work/$model.own"
        for key in peak_gib flops parameters; do
            field "$key" <"$work/report" >"$work/$model.$key"
        done
    done
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
