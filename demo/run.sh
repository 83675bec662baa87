#!/bin/sh
# ./dev demo: two models of equal size, the same seed and the same batches; one adds, the other rewrites. Everything it
# makes is in runs/demo (or $DDL_DEMO_DIR). About three minutes on two cores.
set -eu
ddl=build/release/ddl
out=${DDL_DEMO_DIR:-runs/demo}
prompt="The most important thing that scientists learned"

say() { printf '\n== %s\n' "$*"; }

rm -rf "$out"

say "1. A vocabulary of 2048 pieces, learned from data/text"
"$ddl" tokenizer train --quiet --vocab-size 2048 --out "$out/tokenizer" \
    data/text/fineweb_edu_sample.txt data/text/tinyshakespeare.txt

say "2. Fourteen OpenStax textbooks to shards; 2 % of the documents are held out"
"$ddl" data build --quiet --tokenizer "$out/tokenizer" --val-fraction 0.02 --out "$out/shards" \
    data/text/openstax_textbooks.jsonl.zst

for model in baseline ddl-cc-ec; do
    say "3. Training $model (recipes/demo.yaml)"
    "$ddl" train recipes/demo.yaml --model "$model" --tokenizer "$out/tokenizer" \
        --train-data "$out/shards/train_*.bin" --val-data "$out/shards/val_*.bin" --out "$out/$model"
done

say "4. Side by side"
"$ddl" compare "$out/baseline" "$out/ddl-cc-ec"

for model in baseline ddl-cc-ec; do
    say "5. What $model writes after: $prompt"
    "$ddl" generate "$out/$model" --prompt "$prompt" --max-tokens 80 --temperature 0.6 --top-k 40 --seed 1
    echo
done

cat <<EOF

Go on from here:
  $ddl generate $out/ddl-cc-ec --prompt "In chemistry," --temperature 0.8
  $ddl eval $out/ddl-cc-ec --text data/text/tinyshakespeare.txt
  $ddl train recipes/cpu.yaml --help
EOF
