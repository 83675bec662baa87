#!/bin/sh
# use_ddl.sh PROGRAM FOLDER: a typical session with an installed `ddl`: tokenizer, shards, a model trained for a few
# steps, generation and evaluation. FOLDER is recreated.
set -eu
ddl=$1
rm -rf "$2"
mkdir -p "$2"
cd "$2"
"$ddl" --version
"$ddl" info >names
grep -q ddl-cc-ec names
"$ddl" info --model ddl-cc-ec --size small | grep '^parameters'
# The bundled tokenizer must be found relative to the program.
[ "$(printf 'hello world' | "$ddl" tokenizer encode)" = "31373 995" ]
printf 'hello world' | "$ddl" data build --quiet --val-fraction 0 - --out gpt2
"$ddl" train --quiet --model ddl-1 --size micro --tokenizer gpt2 --train-data gpt2 --val-data none --seq 2 --batch 1 --steps 1 \
    --warmup 0 --out named --threads 1
(mkdir elsewhere && cd elsewhere && "$ddl" train --quiet ../named --resume --steps 2)

i=0
while [ $i -lt 200 ]; do
    echo "The state of layer $i is read, then it is rewritten, and what was there is replaced."
    i=$((i + 1))
done >corpus.txt
"$ddl" tokenizer train --quiet corpus.txt --vocab-size 300 --out tokenizer.json
"$ddl" data build --quiet corpus.txt --separator '' --tokenizer tokenizer.json --out shards
"$ddl" data info shards --tokenizer tokenizer.json
"$ddl" train --quiet --model ddl-cc-ec --size micro --vocab-size 300 --block-size 64 --tokenizer tokenizer.json \
    --train-data shards --val-every 0 --batch 2 --seq 32 --steps 3 --warmup 1 --out run --threads 1
"$ddl" train --quiet run --resume --steps 4
"$ddl" info run | grep '^model *ddl-cc-ec'
"$ddl" generate run --prompt "The state" --max-tokens 8 --threads 1
"$ddl" eval run --text corpus.txt --seq 32 --max-tokens 256 --threads 1
