#!/bin/sh
# Checks that the folders of a layer call each other in one direction, by the symbols of their object files.
# check_folders.sh SOURCE OBJECTS CLI: OBJECTS is the folder with the objects of src/, CLI that of the program.
# Two tables are open to all folders, whatever their rows refer to: that of the residual rules
# (src/model/residual/table.c), through which a pass calls a rule, and that of the commands (cli/main.c).
set -eu
source=$1 objects=$2 cli=$3
status=0

# calls OBJECTS SOURCE: each line is a file, another one that it needs a symbol of, and the symbol. Objects
# without a source are left out.
calls() {
    (
        cd "$1"
        find . -name '*.o' | sed 's|^\./||' | while read -r object; do
            [ ! -e "$2/${object%.o}" ] || echo "$object"
        done | xargs nm -A -P
    ) | sed 's/\.c\.o: / /' | awk '
        $3 == "U" { needs[$1 " " $2]; next }
        $3 ~ /^[A-Z]$/ { owner[$2] = $1 }
        END {
            for (pair in needs) {
                split(pair, part, " ")
                if (part[2] in owner)
                    print part[1], owner[part[2]], part[2]
            }
        }'
}

# check FOLDER LOWER...: each row names a folder and the folders of its layer that it may call.
check() {
    bad=$(printf '%s\n' "$list" | awk -v own="$1" -v lower=" $* " '
        function folder(path) { return sub("/[^/]*$", "", path) ? path : "." }
        {
            split(own, top, "/")
            split($2, of, "/")
        }
        folder($1) == own && of[1] == top[1] && $1 != "cli/main" && $2 != "model/residual/table" &&
            !index(lower, " " folder($2) " ") { print $1 ".c calls " $3 " of " $2 ".c" }' | sort)
    if [ -n "$bad" ]; then
        printf '%s calls a folder that is not below it:\n%s\n' "$1" "$bad"
        status=1
    fi
    folders="$folders $1"
}

# all_listed LAYER: every folder of the layer has a row.
all_listed() {
    for folder in $(printf '%s\n' "$list" | awk -v layer="$1" '{
            path = $1
            sub("/[^/]*$", "", path)
            if (path == layer || index(path, layer "/") == 1)
                print path
        }' | sort -u); do
        case " $folders " in
        *" $folder "*) ;;
        *)
            echo "$folder: expected a row in tests/check_folders.sh"
            status=1
            ;;
        esac
    done
}

folders=
list=$(calls "$objects" "$source/src")
check model/config
check model/params model/config
check model/observe model/params model/config
check model/pass model/observe model/params model/config
check model/residual model/pass model/observe model/params model/config
check model/operator
check model/files model/residual model/pass model/params model/config
all_listed model
check train/step
check train/log train/step
check train/config train/log train/step
check train/nonfinite train/config train/step
check train/run train/nonfinite train/config train/log train/step
all_listed train

list=$(calls "$cli" "$source")
check cli/output
check cli/model cli/output
check cli cli/output
for folder in bench commands compare completion data eval generate inspect report serve sweep train; do
    check cli/$folder cli cli/model cli/output
done
all_listed cli
exit $status
