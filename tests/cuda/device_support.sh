# shellcheck shell=sh
# For tests on simulated CUDA devices; sourced, with the arguments of the test: SOURCE PROGRAM PLUGIN DRIVER_FOLDER, then its
# own. PLUGIN is empty where the build has no simulated device: the test is skipped.
source=$1
ddl=$2
DDL_BACKEND_PLUGIN=$3
driver=$4
export DDL_BACKEND_PLUGIN
. "$source/tests/support/checks.sh"
[ -n "$DDL_BACKEND_PLUGIN" ] || {
    skip "$(basename "$0" .sh)" "there is no C++ compiler, or the C compiler has no __builtin_clear_padding"
    finish
}

simulated() { LD_LIBRARY_PATH="$driver" "$@"; }

# same_gradients RUN OTHER: the norm of the gradients of step 1, before clipping. Losses do not show a wrong factor, which AdamW
# removes. An op rounds sums of up to 270 terms: a change by sqrt(270) 2^-24 = 1e-6. Of 20 ops, one after the other, it is sqrt(20)
# times as much, 4.4e-6.
same_gradients() {
    for run in "$1" "$2"; do
        sed -n 's/^{"step":1,"loss":.*"grad_norm":\([0-9.e+-]*\),.*/\1/p' "$run/metrics.jsonl"
    done >grad_norms
    awk 'NR == 1 { norm = $1 } NR == 2 { d = $1 - norm } END { exit !(NR == 2 && norm > 0 && d <= 1e-5 * norm && -d <= 1e-5 * norm) }' grad_norms ||
        { cat grad_norms; fail "gradients of $1 and $2"; }
}

# Options of a model with one layer, trained on the data that make_data writes.
tiny_model="--num-hidden-layers 1 --num-attention-heads 1 --head-dim 16 --vocab-size 270 --block-size 16
    --tokenizer tokenizer.json --train-data shards --val-every 0 --warmup 1 --threads 1"
make_data() {
    rm -rf shards
    seq 4000 >corpus.txt
    "$ddl" tokenizer train --quiet corpus.txt --vocab-size 270 --overwrite --out tokenizer.json
    "$ddl" data build --quiet corpus.txt --separator '' --tokenizer tokenizer.json --out shards
}
