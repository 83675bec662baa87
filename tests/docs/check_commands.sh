#!/bin/sh
# Runs every command of README.md and docs/*.md: each line of a fenced block "sh" is a command; a block "console" has
# commands after "$ " and their expected output ("..." matches anything within a line, and alone any number of lines).
# The blocks of a document run in order in a scratch folder that mirrors the source tree.
#   sh check_commands.sh SOURCE SCRATCH PROGRAM
#
# A comment in the document prepares or shortens the next block:
#   <!-- suite: first COMMAND -->            COMMAND runs before the block
#   <!-- suite: ddl train += --steps 3 -->   "--steps 3" is appended to commands that begin with "ddl train"
#   <!-- suite: file NAME -->                the block, of any language, is written to the file NAME
#   <!-- suite: needs MODULE -->             the block runs only if python3 (DDL_PYTHON) has the module; first of its comments
#   <!-- suite: needs --html -->             the block runs only if ddl writes HTML pages; first of its comments
#   <!-- suite: needs --tensorboard -->      the same for event files for TensorBoard
#   <!-- suite: needs mpirun -->             the block runs only if there are mpirun and the MPI plugin
# Exported variables apply to the following lines; HOME is the scratch folder.
# Commands that cannot run here are listed below with the reason; a row that matches no document is an error.
set -eu
source=$1
scratch=$2
program=$3

not_run() {
    cat <<'ROWS'
./dev demo|trains for minutes; ./dev test-fresh runs it
./dev test|runs this script
ddl verify tests/golden|verify.verify runs it
ddl sweep recipes/study-cpu.yaml --jobs|trains for more than two hours
ddl compare runs/study-cpu|needs its runs
ddl inspect runs/study-cpu/ddl-1_seed=0|needs a run of the study
ddl eval runs/study-cpu/ddl-1_seed=0|needs a run of the study
sh bench/models.sh|needs an idle machine
./dev build|builds the program under test
cmake --preset release -DDDL_CUDA=AUTO|builds the program under test
./dev cuda-sim|builds the program under test
ddl verify --ops --backend cuda|needs a GPU
./dev wheel|needs packages from PyPI
pip install ./python|changes the Python that runs it
python3 -m deep_delta.lm_eval|needs lm_eval, from PyPI
hf download|downloads 30 GB
sh bench/against_torch.sh|needs PyTorch and an idle machine
sh bench/against_llama.sh|needs llama-cpp-python and an idle machine
sh bench/against_llama_server.sh|needs llama.cpp and an idle machine
sh bench/against_lm_eval.sh|needs PyTorch, lm_eval and an idle machine
ROWS
}

rm -rf "$scratch"
mkdir -p "$scratch"
passed=0
failed=0
ok() { echo "[       OK ] $1"; passed=$((passed + 1)); }
bad() { echo "[  FAILED  ] $1"; failed=$((failed + 1)); }

# Writes the blocks of a document to files: NNN, with lines "first|command", "more|prefix|flags", "run|command" or
# "out|line", or NNN.NAME, a file.
extract() {
    awk -v out="$2" '
        function flush_command() {
            if (command != "") { print "run|" command > file; command = "" }
        }
        /^<!-- suite: .* -->$/ {
            text = substr($0, 13, length($0) - 16)
            if (text ~ /^needs /) waiting = waiting "needs|" substr(text, 7) "\n"
            else if (text ~ /^first /) waiting = waiting "first|" substr(text, 7) "\n"
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

# Checks that the expected lines in file 1 match the output in file 2.
matches() {
    awk -v wanted="$1" '
        function matches_line(pattern, text,    part, k, n, at, first) {
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
                    while (j <= m && !matches_line(want[k + 1], got[j])) j++
                    continue
                }
                if (j > m || !matches_line(want[k], got[j])) {
                    print "expected: " want[k]; print "found:    " got[j]
                    exit 1
                }
                j++
            }
            exit j <= m
        }' "$2"
}

# Mirrors the source tree with symbolic links, with this build as build/release, and without data/shards.
make_tree() {
    mkdir -p "$1/build" "$1/data"
    for entry in "$source"/* "$source"/data/*; do
        case ${entry#"$source"/} in
        build | data | runs | my | data/shards) ;;
        *) ln -s "$entry" "$1/${entry#"$source"/}" ;;
        esac
    done
    ln -s "${program%/*}" "$1/build/release"
    mkdir "$1/.bin"
    if [ -n "${DDL_PYTHON:-}" ]; then
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$DDL_PYTHON" >"$1/.bin/python3"
        chmod +x "$1/.bin/python3"
    fi
    # mpirun as root, with more ranks than cores
    echo "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1" \
        >"$1/.environment"
    echo "export HOME='$1' PATH='$1/.bin:$1/build/release':\"\$PATH\"" >>"$1/.environment"
}

# run LINE: runs it in the tree with the environment exported by earlier lines.
run() {
    (cd "$tree" && timeout -s KILL 300 sh -c ". ./.environment; $1") >"$scratch/out" 2>"$scratch/err" </dev/null
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
    # remove a trailing comment, which would hide the appended options
    bare=$(printf '%s' "$2" | sed 's/[ ][ ]*#[ ].*$//')
    if ! run "$bare$more"; then
        bad "$1: $2"
        cat "$scratch/out" "$scratch/err"
    elif [ -s "$3" ] && ! matches "$3" "$scratch/out"; then
        bad "$1: $2 prints unexpected output"
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
        needs\|--html | needs\|--tensorboard)
            command="ddl compare . --html page.html"
            [ "$rest" = --html ] || command="ddl train --size micro --dry-run --tensorboard"
            run "$command" || ! grep -q "${rest#--}: not available" "$scratch/err" && continue
            echo "not run: a block of $1 (ddl was built without $rest)"
            return 0 ;;
        needs\|mpirun)
            run "command -v mpirun && ! ddl --version --verbose | grep '^MPI: none'" && continue
            echo "not run: a block of $1 (no mpirun, or no MPI plugin)"
            return 0 ;;
        needs\|*)
            run "python3 -c 'import $rest'" && continue
            echo "not run: a block of $1 (python3 has no $rest)"
            return 0 ;;
        first\|*)
            run "$rest" || { bad "$1: suite: first $rest"; cat "$scratch/out" "$scratch/err"; } ;;
        more\|*--checkpoint-every* | more\|*--overwrite* | more\|*--resume* | more\|*--any* | more\|*--sample-every*)
            bad "$1: suite: $rest: hides what the printed command does" ;;
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
    # A command on an indented line would not be run: it must be in a fenced block.
    if grep -nE '^    (\$ )?(ddl|\./dev|cmake|apt-get|sh|python3?) ' "$document"; then
        bad "$document: commands outside of a fenced block (lines above)"
    fi
done
not_run | while IFS='|' read -r prefix reason; do
    grep -qxF "$prefix" "$scratch/used" || echo "$prefix"
done >"$scratch/stale"
if [ -s "$scratch/stale" ]; then
    bad "listed as not run, but in no document: $(tr '\n' ';' <"$scratch/stale")"
fi
echo "$passed command lines ran"
[ "$failed" -eq 0 ] || echo " $failed FAILED TEST(S)"
[ "$failed" -eq 0 ]
