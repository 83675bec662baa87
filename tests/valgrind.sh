#!/bin/sh
# One training step, a resumed one, generation and scores of tokens of a tiny model under valgrind's memcheck: no
# invalid access, no decision on what was never written, no leak. DDL_ISA=baseline, because valgrind knows no AVX-512.
# usage: valgrind.sh DDL SOURCE SCRATCH    exit status 77: valgrind is not installed
set -eu
ddl=$1
source=$2
scratch=$3
if ! command -v valgrind >/dev/null 2>&1; then
    echo "[  SKIPPED ] valgrind is not installed"
    exit 77
fi
rm -rf "$scratch/work"
mkdir -p "$scratch/work"
cd "$scratch/work"
failed=0

# check NAME ARGUMENT...: runs `ddl ARGUMENT...` under memcheck
check() {
    name=$1
    shift
    # One thread: valgrind runs one at a time anyway, and libgomp's team would count as memory that is kept.
    if DDL_ISA=baseline OMP_NUM_THREADS=1 valgrind --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite,indirect --suppressions="$source/tests/valgrind.supp" --log-file="$name.log" \
        "$ddl" "$@" >"$name.out" 2>&1 &&
        grep -q 'ERROR SUMMARY: 0 errors' "$name.log"; then
        echo "[       OK ] $name"
    else
        cat "$name.log" "$name.out"
        echo "[  FAILED  ] $name"
        failed=$((failed + 1))
    fi
}

cp "$source/LICENSE" text.txt
"$ddl" tokenizer train text.txt --vocab-size 280 --out tokenizer/tokenizer.json >prepare.out 2>&1
"$ddl" data build text.txt --tokenizer tokenizer --out shards --quiet >>prepare.out 2>&1
run="--model ddl-cc-ec --vocab-size 280 --num-hidden-layers 1 --num-attention-heads 2 --hidden-size 16 --head-dim 8
    --block-size 16 --batch 2 --accumulate 1 --seq 16 --warmup 1 --threads 1 --log-every 1 --checkpoint-every 1
    --tokenizer tokenizer --train-data shards/train_*.bin --out run"
# shellcheck disable=SC2086
check train train $run --steps 1
# shellcheck disable=SC2086
check resume train $run --steps 2 --resume
check generate generate run --prompt "The Software" --max-tokens 4 --threads 1
check logprobs logprobs run text.txt --json --threads 1
check compare compare run run --svg run.svg
check report report run --json
[ "$failed" -eq 0 ] || { echo "$failed FAILED TEST(S)"; exit 1; }
