#!/bin/sh
# Compares task evaluation with lm-evaluation-harness on this machine: the same model of size mini (random weights, float32),
# the same documents, the harness with the model in PyTorch. Runs both alternately, several times, prints documents per second
# and the ratio of the medians, and compares all log-likelihoods and accuracies.
#
#   bench/against_lm_eval.sh [--models "baseline ddl-cc-ec"] [--tasks LIST] [--shots 0] [--limit 100]
#                            [--data data/tasks] [--batches "1 8 32"] [--rounds 2]
#
# The harness runs with each batch size of --batches; its best median counts. Its time is that of loglikelihood() only: tokenizing
# and the model. ddl's is that of the whole program. PYTHON is a Python interpreter with torch, lm_eval and tokenizers. Run
# it on an idle machine.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

python=${PYTHON:-python3}
ddl=${DDL:-build/release/ddl}
models="baseline ddl-cc-ec" tasks=arc_easy,arc_challenge,hellaswag,piqa,winogrande shots=0 limit=100 data=data/tasks batches="1 8 32" rounds=2
take_options "--models --tasks --shots --limit --data --batches --rounds" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
"$python" -c 'import torch, lm_eval, tokenizers' 2>/dev/null || {
    echo "$0: $python has no torch, lm_eval or tokenizers. To install them:" >&2
    echo "  python3 -m venv peers && peers/bin/pip install torch lm_eval tokenizers && PYTHON=peers/bin/python $0 ..." >&2
    exit 1
}

peer=bench/peers/lm_eval_peer.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
processor
echo "size mini, $tasks, $shots shots, first $limit documents of each, $rounds rounds"
printf '%-12s %6s %14s %14s %8s  %s\n' model batch "harness docs/s" "ddl docs/s" ratio "scores"
for model in $models; do
    folder=$work/$model round=0
    "$python" "$peer" make "$folder" --model "$model"
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        for batch in $batches; do
            "$python" "$peer" run "$folder" --data "$data" --tasks "$tasks" --shots "$shots" --limit "$limit" --batch "$batch" \
                >"$work/harness" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
            field documents_per_s <"$work/harness" >>"$work/harness.$model.$batch"
        done
        rm -f "$work/items"
        start=$(date +%s%N)
        "$ddl" eval "$folder" --tasks "$tasks" --shots "$shots" --limit "$limit" --data "$data" --quiet \
            --items "$work/items" >/dev/null
        end=$(date +%s%N)
        awk -v n="$(wc -l <"$work/items")" -v ns="$((end - start))" 'BEGIN { print n * 1e9 / ns }' >>"$work/ddl.$model"
    done
    scores=$("$python" "$peer" compare "$work/harness" --items "$work/items")
    best=$(for batch in $batches; do echo "$(median <"$work/harness.$model.$batch") $batch"; done | sort -n | tail -n 1)
    awk -v m="$model" -v h="${best% *}" -v b="${best#* }" -v d="$(median <"$work/ddl.$model")" -v s="$scores" \
        'BEGIN { printf "%-12s %6d %14.1f %14.1f %8.1f  %s\n", m, b, h, d, d / h, s }'
done
