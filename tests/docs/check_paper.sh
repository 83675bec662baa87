#!/bin/sh
# check_paper.sh SOURCE SCRATCH PROGRAM: recipes/paper/small.yaml with models of a toy size, a few steps long: the sweep runs, and
# analysis.sh and hours.sh make their tables of it.
set -eu
source=$1
ddl=$3
. "$source/tests/support/checks.sh"
rm -rf "$2"
mkdir -p "$2"
cd "$2"

make_data() {
    cp "$source/LICENSE" text.txt
    "$ddl" tokenizer train text.txt --vocab-size 300 --out data/tokenizer.json --quiet
    for part in train select report; do
        "$ddl" data build text.txt --tokenizer data/tokenizer.json --val-fraction 0 --out "data/shards/paper/$part" \
            --quiet
    done
}

# Each replaced key must be there.
make_recipe() {
    cp "$source/recipes/paper/small.yaml" small.yaml
    while read -r key value; do
        grep -q "^ *$key: " small.yaml || fail "small.yaml has no $key"
        sed "s|^\( *\)$key: .*|\1$key: $value|" small.yaml >changed && mv changed small.yaml
    done <<'EOF'
backend cpu
dtype f32
size micro
vocab_size 300
tokenizer data/tokenizer.json
steps 4
batch 2
global_batch 2
seq 16
warmup 1
log_every 1
telemetry_every 0
val_every 2
val_tokens 64
checkpoint_every 4
values [5e-4, 1e-3]
set {val_data: data/shards/paper/select, warmup: 1, val_every: 2, val_tokens: 64}
EOF
    sed 's/^base:/&\n  hidden_size: 32\n  threads: 1/' small.yaml >changed && mv changed small.yaml
}

sweep() {
    make_data
    make_recipe
    "$ddl" sweep small.yaml --jobs 2 >sweep.txt 2>&1 || { tail sweep.txt; fail "the sweep failed"; }
}

# The contrasts of the protocol, each group with its three seeds, and the figures.
analysis() {
    DDL=$ddl sh "$source/recipes/paper/analysis.sh" runs/paper-table paper-table >out 2>&1 || { cat out; fail "analysis.sh"; }
    contrasts=$(sed -n '/^protocol:/,/^base:/p' small.yaml | grep -c '^    - ')
    grep -q '^| ddl-cc-ec - ddl-cc-ec-write | val | 3 |' paper-table/contrasts.md || fail "no primary contrast"
    [ "$(grep -c '^| [a-z0-9-]* - [a-z0-9-]* | val | 3 |' paper-table/contrasts.md)" -eq $((contrasts + 1)) ] ||
        fail "expected $contrasts secondary contrasts"
    for name in loss-tokens.svg loss-flops.svg loss-train_seconds.svg; do
        grep -q '</svg>' "paper-table/$name" || fail "$name"
    done
    [ "$(wc -l <paper-table/runs.csv)" -gt 36 ] || fail "runs.csv: expected a line for each of 36 runs"
}

hours() {
    DDL=$ddl sh "$source/recipes/paper/hours.sh" >hours.txt || fail "hours.sh"
    grep -q '^|.*ddl-cc-ec-write' hours.txt || { cat hours.txt; fail "no row of ddl-cc-ec-write"; }
}

check sweep sweep
check analysis analysis
check hours hours
finish
