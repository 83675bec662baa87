#!/bin/sh
# Checks that names in README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and docs/*.md exist: files and links, functions of a file
# ("block.c:sublayer_fwd"), ops, verbs of ./dev, and commands of ddl with their options; and that every op is documented.
#   sh check_names.sh SOURCE SCRATCH PROGRAM
set -eu
cd "$1"
scratch=$2
program=$3
failed=0
rm -rf "$scratch"
mkdir -p "$scratch"
documents="README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md $(echo docs/*.md)"

# report NAME: the test of this name fails if $scratch/wrong has lines.
report() {
    if [ -s "$scratch/wrong" ]; then
        cat "$scratch/wrong"
        echo "[  FAILED  ] $1"
        failed=$((failed + 1))
    else
        echo "[       OK ] $1"
    fi
    : >"$scratch/wrong"
}
: >"$scratch/wrong"

# Spans in backticks outside of fenced blocks, as "document<tab>span".
for document in $documents; do
    awk -v name="$document" '
        /^```/ { inside = !inside; next }
        !inside {
            while (match($0, /`[^`]+`/)) {
                print name "\t" substr($0, RSTART + 1, RLENGTH - 2)
                $0 = substr($0, RSTART + RLENGTH)
            }
        }' "$document"
done >"$scratch/spans"

# ---- files ----

# A span that begins with a folder of the tree is a path; <step> and * match anything.
while IFS='	' read -r document span; do
    case $span in
    src/* | include/* | tests/* | docs/* | recipes/* | data/text* | data/tokenizer* | cli/* | cmake/* | bench/* | python/* | demo/*) ;;
    *) continue ;;
    esac
    path=${span%%:*}
    pattern=$(echo "$path" | sed 's/<[a-z]*>/*/g')
    # shellcheck disable=SC2086
    set -- $pattern
    [ -e "$1" ] || echo "$document: $span does not exist"
done <"$scratch/spans" >>"$scratch/wrong"
report files_exist

for document in $documents; do
    grep -oE '\]\([^)#]+' "$document" | sed 's/^](//' | grep -v '^http' | while read -r link; do
        [ -e "$(dirname "$document")/$link" ] || echo "$document: broken link $link"
    done
    # A link to a heading, of this document or another: in lower case, spaces replaced by dashes, punctuation removed.
    grep -oE '\]\([^)#:]*(\.md)?#[^)]+' "$document" | sed 's/^](//' | while IFS='#' read -r file link; do
        file=${file:+$(dirname "$document")/$file}
        file=${file:-$document}
        [ -e "$file" ] || continue
        sed -n 's/^#* //p' "$file" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' | grep -qxF -e "$link" ||
            echo "$document: no heading for #$link in $file"
    done
done >>"$scratch/wrong"
report links_resolve

# ---- functions: "file.c:name" and "file.c:name, other" ----
while IFS='	' read -r document span; do
    case $span in
    *.[ch]:[a-z]*) ;;
    *) continue ;;
    esac
    file=${span%%:*}
    found=$(find src cli include tests -path "*/${file#src/}" | head -n 1)
    if [ -z "$found" ]; then
        echo "$document: $file does not exist ($span)"
        continue
    fi
    for function in $(echo "${span#*:}" | tr ',' ' '); do
        grep -qE "(^|[^a-z_0-9])$function *(\(|\{|=)" "$found" || echo "$document: $found has no $function"
    done
done <"$scratch/spans" >>"$scratch/wrong"
report functions_exist

# ---- ops ----
awk '/^#define DDL_OPS/,/^\/\* clang-format on/' src/ops/ops.h | sed -n 's/^ *OP(\([a-z_0-9]*\),.*/\1/p' >"$scratch/ops"
sed -n 's/^docs\/equations.md	//p' "$scratch/spans" | tr ',' '\n' | tr -d ' ' >"$scratch/documented"
while read -r op; do
    grep -qxF "$op" "$scratch/documented" || echo "docs/equations.md: the op $op is not documented"
done <"$scratch/ops" >>"$scratch/wrong"
report every_op_is_documented

# ---- models: every named one in models.md and in the comment of ddl_config_set_preset; rules in graft.md ----
sed -n 's/^    { \(ALONE\|WITH_CONTROLS\)("\([^"]*\)").*/\2/p' src/model/config/config.c >"$scratch/models"
sed -n 's/^    RULE([A-Z0-9_]*, \([a-z0-9_]*\)).*/\1/p' src/model/residual/table.h >"$scratch/rules"
in_document() { sed -n "s|^docs/$1.md	||p" "$scratch/spans" | grep -qxE -e "(--model )?$2"; }
{
    [ -s "$scratch/models" ] && [ -s "$scratch/rules" ] || echo "no models or rules found"
    while read -r model; do
        in_document models "$model" || echo "docs/models.md: the model $model is missing"
        grep -q "^[ /]\*.*\"$model\"" include/ddl/config.h || echo "include/ddl/config.h: the model $model is missing"
    done <"$scratch/models"
    while read -r rule; do
        in_document graft "$rule" || echo "docs/graft.md: the rule $rule is missing"
    done <"$scratch/rules"
} >>"$scratch/wrong"
report every_model_is_documented

# ---- commands ----
"$program" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' >"$scratch/commands"
while read -r command; do
    "$program" "$command" --help >"$scratch/help.$command"
    # Its actions: words of the help that have their own help.
    for action in $({ sed -n 1p "$scratch/help.$command"; grep -o "ddl $command [a-z]*" "$scratch/help.$command"; } |
            sed "s/.*ddl $command//" | tr -cs 'a-z' '\n' | sort -u); do
        "$program" "$command" "$action" --help >"$scratch/action" 2>/dev/null || continue
        grep -q "^usage: ddl $command $action" "$scratch/action" || continue
        mv "$scratch/action" "$scratch/help.$command.$action"
    done
done <"$scratch/commands"
cat "$scratch"/help.* >"$scratch/all"

# A help shows "--name", or "--[no-]name" for "--name" and "--no-name".
has_option() {
    grep -qE -e "(^|[ [])--(\[no-\])?${2#--}([] =,.)]|$)" "$1" || grep -qE -e "(^|[ [])--\[no-\]${2#--no-}([] =,.)]|$)" "$1"
}

# Spans, and comments of recipes, that are ddl commands.
{
    sed -n 's/^\([^	]*	\)ddl /\1/p' "$scratch/spans"
    for recipe in recipes/*.yaml recipes/*/*.yaml; do
        sed -n "s|^# *ddl \(.*\)|$recipe	\1|p" "$recipe"
    done
} | while IFS='	' read -r document line; do
    set -f
    # shellcheck disable=SC2086
    set -- $line
    set +f
    help=$scratch/help.$1
    case $1 in
    [A-Z]* | -*) help=$scratch/all ;;
    esac
    if [ ! -e "$help" ]; then
        echo "$document: ddl has no command '$1'"
        continue
    fi
    [ $# -lt 2 ] || [ ! -e "$help.$2" ] || help=$help.$2
    for option in "$@"; do
        case $option in
        --help | --version) continue ;;
        --*) ;;
        *) continue ;;
        esac
        option=${option%%=*}
        has_option "$help" "$option" || echo "$document: 'ddl $line': no $option"
    done
done >>"$scratch/wrong"
# An option without a command must belong to any command (options of ./dev and cmake appear with their command).
sed -n 's/^\([^	]*\)	\(--[a-z][a-z-]*\).*/\1	\2/p' "$scratch/spans" | while IFS='	' read -r document option; do
    has_option "$scratch/all" "$option" || echo "$document: no command has $option"
done >>"$scratch/wrong"
report commands_exist

sed -n 's/^\([^	]*\)	\.\/dev \([a-z0-9-]*\).*/\1	\2/p' "$scratch/spans" | while IFS='	' read -r document verb; do
    ./dev help | grep -qE "^  $verb( |\$)" || echo "$document: ./dev has no verb $verb"
done >>"$scratch/wrong"
report verbs_exist

[ "$failed" -eq 0 ] || echo " $failed FAILED TEST(S)"
[ "$failed" -eq 0 ]
