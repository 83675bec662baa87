#!/bin/sh
# Checks that the files of a layer do not call each other in circles, by the symbols of their object files.
# check_circles.sh OBJECTS LAYER...: OBJECTS is the folder with the objects of src/.
set -eu
objects=$1
shift
status=0
for layer in "$@"; do
    list=$(find "$objects/$layer" -name '*.o' ! -path '*/cli/main.c.o' | sort)
    [ -n "$list" ] || { echo "$objects/$layer: no object files"; exit 1; }
    # shellcheck disable=SC2086 # one word per file
    circles=$(nm -A -P $list | sed 's/: / /' | awk '
        $3 == "U" { needs[$1 " " $2]; next }
        $3 ~ /^[A-Z]$/ { owner[$2] = $1 }
        END {
            for (pair in needs) {
                split(pair, part, " ")
                if (part[2] in owner)
                    print part[1], owner[part[2]]
            }
        }' | sort -u | tsort 2>&1 >/dev/null | sed -n "s|.*$objects/||p")
    if [ -n "$circles" ]; then
        echo "$layer: these files call each other in circles:"
        echo "$circles"
        status=1
    fi
done
exit $status
