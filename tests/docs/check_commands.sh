#!/bin/sh
# Every command line of README.md and docs/*.md runs: each fenced block "sh" is lines of commands, each block "console"
# commands behind "$ " and what they print ("..." stands for anything within a line, and alone for any lines). The
# blocks of one document run in order in a scratch folder that looks like the source tree.
#   sh check_commands.sh SOURCE SCRATCH PROGRAM
#
# A comment in the document says how the next block is made ready or cut short:
#   <!-- suite: first COMMAND -->            COMMAND runs before the block
#   <!-- suite: ddl train += --steps 3 -->   commands that begin with "ddl train" get the rest appended
#   <!-- suite: file NAME -->                the block, of whatever language, is the file NAME
# What a line exports holds for those after it; HOME is the scratch folder.
# What cannot run here at all is listed below with its reason; a row that no document has any more is an error.
set -eu
source=$1
scratch=$2
program=$3

not_run() {
    cat <<'ROWS'
./dev demo|trains for minutes; ./dev test-fresh runs it
./dev test|is what runs this
./dev build|makes what this runs
sh bench/against_torch.sh|needs PyTorch and an idle machine
ROWS
}

rm -rf "$scratch"
mkdir -p "$scratch"
passed=0
failed=0
ok() { echo "[       OK ] $1"; passed=$((passed + 1)); }
bad() { echo "[  FAILED  ] $1"; failed=$((failed + 1)); }

# The blocks of one document as files: NNN, whose lines are "first|command", "more|prefix|flags", "run|command",
# "out|line", or NNN.NAME, a file.
extract() {
    awk -v out="$2" '
        function flush_command() {
            if (command != "") { print "run|" command > file; command = "" }
        }
        /^<!-- suite: .* -->$/ {
            text = substr($0, 13, length($0) - 16)
            if (text ~ /^first /) waiting = waiting "first|" substr(text, 7) "\n"
            else if (text ~ /^file /) name = substr(text, 6)
            else if (index(text, " += ")) {
                at = index(text, " += ")
                waiting = waiting "more|" substr(text, 1, at - 1) "|" substr(text, at + 4) "\n"
            } else waiting = waiting "wrong|" text "\n"
            next
        }
        /^```/ {
            if (inside) { flush_command(); inside = ""; next }
            inside = $0 ~ /^```(sh|console)$/ ? substr($0, 4) : "other"
            if (name != "") {
                n++
                file = sprintf("%s/%03d.%s", out, n, name)
                inside = "file"
                name = ""
                printf "" > file
            } else if (inside != "other") {
                n++
                file = sprintf("%s/%03d", out, n)
                printf "%s", waiting > file
                waiting = ""
            }
            next
        }
        inside == "file" { print > file }
        inside == "sh" {
            command = command $0
            if ($0 ~ /\\$/) { sub(/\\$/, "", command); next }
            if (command ~ /^[ \t]*(#.*)?$/) command = ""
            flush_command()
        }
        inside == "console" {
            if ($0 ~ /^\$ /) print "run|" substr($0, 3) > file
            else print "out|" $0 > file
        }
        END { if (waiting != "") print "wrong|a suite comment without a block" > (out "/999") }
    ' "$1"
}

# Whether the lines of file 1 fit those of file 2.
fits() {
    awk -v wanted="$1" '
        function fits_line(pattern, text,    part, k, n, at, first) {
            n = split(pattern, part, /\.\.\./)
            first = 1
            for (k = 1; k <= n; k++) {
                at = index(text, part[k])
                if (part[k] != "" && (!at || (first && at != 1))) return 0
                if (part[k] != "") text = substr(text, at + length(part[k]))
                first = 0
            }
            return part[n] == "" || text == ""
        }
        BEGIN { while ((getline l < wanted) > 0) want[++n] = l; k = 1 }
        { got[++m] = $0 }
        END {
            j = 1
            for (k = 1; k <= n; k++) {
                if (want[k] == "...") {
                    if (k == n) exit 0
                    while (j <= m && !fits_line(want[k + 1], got[j])) j++
                    continue
                }
                if (j > m || !fits_line(want[k], got[j])) {
                    print "wanted: " want[k]; print "found:  " got[j]
                    exit 1
                }
                j++
            }
            exit j <= m
        }' "$2"
}

# A folder like the source tree, with this build as build/release.
make_tree() {
    mkdir -p "$1/build"
    for entry in "$source"/*; do
        case ${entry##*/} in
        build | runs | my) ;;
        *) ln -s "$entry" "$1/${entry##*/}" ;;
        esac
    done
    ln -s "${program%/*}" "$1/build/release"
    echo "export HOME='$1' PATH='$1/build/release':\"\$PATH\"" >"$1/.environment"
}

# run LINE: in the tree, in the environment that the lines before have made.
run() {
    (cd "$tree" && timeout -s KILL 60 sh -c ". ./.environment; $1") >"$scratch/out" 2>"$scratch/err" </dev/null
}

reason_of() {
    not_run | while IFS='|' read -r prefix reason; do
        case $1 in
        "$prefix" | "$prefix "*) echo "$prefix|$reason"; break ;;
        esac
    done
}

run_one() { # document, command, file of expected output or nothing
    why=$(reason_of "$2")
    if [ -n "$why" ]; then
        echo "not run: $2 (${why#*|})"
        echo "${why%%|*}" >>"$scratch/used"
        return 0
    fi
    more=""
    while IFS='|' read -r prefix flags; do
        case $2 in
        "$prefix "*) more="$more $flags" ;;
        esac
    done <"$scratch/more"
    # a comment behind the command must not swallow what is appended
    bare=$(printf '%s' "$2" | sed 's/[ ][ ]*#[ ].*$//')
    if ! run "$bare$more"; then
        bad "$1: $2"
        cat "$scratch/out" "$scratch/err"
    elif [ -s "$3" ] && ! fits "$3" "$scratch/out"; then
        bad "$1: $2 prints something else"
        cat "$scratch/out"
    else
        ok "$1: $2"
        case $2 in
        "export "*) echo "$bare" >>"$tree/.environment" ;;
        esac
    fi
}

run_block() { # document, file
    : >"$scratch/more"
    : >"$scratch/wanted"
    pending=""
    while IFS= read -r line || [ -n "$line" ]; do
        rest=${line#*|}
        case $line in
        out\|*) printf '%s\n' "$rest" >>"$scratch/wanted"; continue ;;
        esac
        [ -z "$pending" ] || run_one "$1" "$pending" "$scratch/wanted"
        pending=""
        : >"$scratch/wanted"
        case $line in
        first\|*)
            run "$rest" || { bad "$1: suite: first $rest"; cat "$scratch/out" "$scratch/err"; } ;;
        more\|*) printf '%s\n' "$rest" >>"$scratch/more" ;;
        run\|*) pending=$rest ;;
        *) bad "$1: suite: $rest" ;;
        esac
    done <"$2"
    [ -z "$pending" ] || run_one "$1" "$pending" "$scratch/wanted"
}

: >"$scratch/used"
cd "$source"
for document in README.md docs/*.md; do
    name=$(echo "$document" | tr '/' '_')
    tree=$scratch/$name
    make_tree "$tree"
    mkdir "$scratch/blocks.$name"
    extract "$document" "$scratch/blocks.$name"
    for block in "$scratch/blocks.$name"/*; do
        case ${block##*/} in
        [0-9][0-9][0-9].*) cp "$block" "$tree/${block##*/???.}" ;;
        [0-9]*) run_block "$document" "$block" ;;
        esac
    done
    # An indented line that is a command would not be run: it belongs into a block.
    if grep -nE '^    (\$ )?(ddl|\./dev|cmake|apt-get|sh|python3?) ' "$document"; then
        bad "$document: the lines above are commands outside of a block 'sh'"
    fi
done
not_run | while IFS='|' read -r prefix reason; do
    grep -qxF "$prefix" "$scratch/used" || echo "$prefix"
done >"$scratch/stale"
if [ -s "$scratch/stale" ]; then
    bad "no document has $(tr '\n' ';' <"$scratch/stale") which this script excuses"
fi
echo "$passed command lines ran"
[ "$failed" -eq 0 ] || echo " $failed FAILED TEST(S)"
[ "$failed" -eq 0 ]
