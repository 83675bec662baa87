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

# Options of a model with one layer, trained on the data that make_data writes.
tiny_model="--num-hidden-layers 1 --num-attention-heads 1 --head-dim 16 --vocab-size 270 --block-size 16
    --tokenizer tokenizer.json --train-data shards --val-every 0 --warmup 1 --threads 1"
make_data() {
    rm -rf shards
    seq 4000 >corpus.txt
    "$ddl" tokenizer train --quiet corpus.txt --vocab-size 270 --overwrite --out tokenizer.json
    "$ddl" data build --quiet corpus.txt --separator '' --tokenizer tokenizer.json --out shards
}
