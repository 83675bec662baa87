#!/bin/sh
# A file includes its own layer and the ones below it: each row names a folder and what it may include. Public headers
# (ddl/) are open to all; cli/ sees nothing else of the library.
set -eu
cd "$1"
status=0

check() {
    folder=$1
    shift
    allowed=$(printf '%s|' "$@" ddl)
    for file in $(find "$folder" -name '*.[ch]' | sort); do
        bad=$(grep -nE '^#include "[a-z_]+/' "$file" | grep -vE "\"(${allowed%|})/" || true)
        if [ -n "$bad" ]; then
            echo "$file includes above its layer: $bad"
            status=1
        fi
    done
}

check src/base base
check src/tensor tensor base
check src/ops ops base
check src/backend backend ops base
check src/text text base tensor
check src/data data text base tensor
check src/model model ops tensor base
check src/infer infer model data text ops tensor base
check src/checkpoint checkpoint train model tensor base
check src/train train checkpoint infer model data text ops tensor base
check src/study study train checkpoint infer model data text ops tensor base
check src/verify verify study train checkpoint infer model data text ops tensor base
check src/bench bench train infer model data text ops tensor base
check cli cli
exit $status
