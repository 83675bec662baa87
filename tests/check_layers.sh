#!/bin/sh
# Checks the includes of src/ and cli/. A file includes headers of its own layer, and of lower layers those that are
# their interface; every other header of a layer is private to it. Public headers (ddl/) are open to all; cli/ includes
# no others. Tests may include private headers.
set -eu
cd "$1"
status=0

# The headers of a layer that other layers may include.
interface() {
    case $1 in
    base) echo 'bf16|clock|crc32c|distribution|file|held|json|json_scan|locale|lock|machine|mem|noise|path|pattern|plugin|process|rng|sha256|utf8' ;;
    tensor) echo 'safetensors' ;;
    ops) echo 'args|audit|cases|defaults|group|operands|ops|profile|trial|uploads' ;;
    text) echo 'limits|train' ;;
    comm) echo 'comm' ;;
    model) echo 'files/(model_io|sums)|observe/(force_set|probe|rows)|params/flat|pass/(decode|measure|model|poll)' ;;
    infer) echo 'tasks/random|text_ids|token_source' ;;
    checkpoint) echo 'checkpoint|files|folder' ;;
    train) echo 'config/(configure|recipe|recipe_writer|run_data|train_config)|nonfinite/nonfinite|step/(optim|spike|step)' ;;
    *) echo 'none' ;;
    esac
}

# check LAYER LOWER...: each row names a layer and the layers below it.
check() {
    layer=$1
    shift
    allowed="$layer/|ddl/"
    for lower in "$@"; do
        allowed="$allowed|$lower/($(interface "$lower"))\\.h\""
    done
    folder=src/$layer
    [ "$layer" = cli ] && folder=cli
    for file in $(find "$folder" -name '*.[ch]' | sort); do
        bad=$(grep -nE '^#include "[a-z_]+/' "$file" | grep -vE "\"($allowed)" || true)
        if [ -n "$bad" ]; then
            echo "$file: includes a header that is above its layer or private to another: $bad"
            status=1
        fi
    done
}

check base
check tensor base
check ops base
check backend ops base
check text base tensor
check data text base tensor
check comm base
check model comm ops tensor base
check infer model comm data text ops tensor base
check checkpoint model tensor base
check train checkpoint infer model comm data text ops tensor base
check study train checkpoint infer model comm data text ops tensor base
check verify study train checkpoint infer model data text ops tensor base
check bench train infer model comm data text ops tensor base
check cli
exit $status
