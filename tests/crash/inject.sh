# An error of each kind of system call, injected by strace into its first, second and last call on the files of a command:
# the command ends with a message and status 1, and the same command or its continuation then has the undisturbed result, or
# it has that result at once. Nothing in between.
#   sh inject.sh PROGRAM SOURCE SCRATCH
# With DDL_TEST_SAMPLE=1 only one of the three calls is tried. The table in docs/reliability.md has the result of each pair.
set -eu
program=$1
source=$2
scratch=$3
. "$source/tests/support/checks.sh"
export DDL_COMM=none OMP_NUM_THREADS=1 LC_ALL=C

commands="train resume eval build sweep"
calls="getdents64 openat read write ftruncate flock rename fsync"

if ! command -v strace >/dev/null 2>&1; then
    skip inject "strace is not installed"
    exit 77
fi
if ! strace -f -qq -o /dev/null -e trace=none true 2>/dev/null; then
    skip inject "processes cannot be traced here"
    exit 77
fi

rm -rf "${scratch:?}"/*
own=$scratch/own # the files of the commands; errors are injected into calls on these
run=$own/run     # those that a command writes
inputs=$own/inputs
log=$scratch/log
mkdir "$own" "$inputs" "$log"

# ---- commands ----

make_inputs() {
    head -c 6000 "$source/LICENSE" >"$inputs/text.txt"
    "$program" tokenizer train "$inputs/text.txt" --vocab-size 300 --out "$inputs/tokenizer.json" --quiet
    mkdir "$inputs/shards"
    "$program" data build "$inputs/text.txt" --tokenizer "$inputs/tokenizer.json" --val-fraction 0.2 --overwrite \
        --out "$inputs/shards" --quiet >/dev/null
    for n in 1 2 3 4 5 6 7 8; do
        echo "{\"text\": \"Document $n of a file, with some words in it.\"}" >>"$inputs/documents.jsonl"
        echo "{\"context\": \"No. $n\", \"choices\": [\"one\", \"two\"], \"gold\": $((n % 2))}" >>"$inputs/task.jsonl"
    done
    cat >"$inputs/recipe.yaml" <<EOF
vocab_size: 320
num_hidden_layers: 1
num_attention_heads: 1
hidden_size: 8
head_dim: 8
block_size: 16
batch: 2
steps: 4
warmup: 1
checkpoint_every: 2
val_every: 2
val_tokens: 32
sample_every: 2
sample_tokens: 4
log_every: 1
backend: ref
threads: 1
train_data: $inputs/shards
tokenizer: $inputs/tokenizer.json
out: $run/r
EOF
    cat >"$inputs/sweep.yaml" <<EOF
base: $inputs/recipe.yaml
set: {steps: 2}
choose: {key: lr, values: [1e-3, 1e-2]}
out: $run/w
EOF
    mkdir "$run"
    "$program" train "$inputs/recipe.yaml" --steps 2 --quiet >/dev/null
    cp -R "$run/r" "$inputs/stopped"
    cp -R "$run/r" "$inputs/model"
    rm -r "$run"
}

# prepare COMMAND: the files that it starts from.
prepare() {
    rm -rf "$run"
    mkdir "$run"
    case $1 in
        resume) cp -R "$inputs/stopped" "$run/r" ;;
        eval) ! [ -e "$inputs/items.jsonl" ] || head -n 3 "$inputs/items.jsonl" >"$run/items.jsonl" ;;
    esac
}

# arguments COMMAND: sets $arguments.
arguments() {
    case $1 in
        train) arguments="train $inputs/recipe.yaml --quiet" ;;
        resume) arguments="train $inputs/recipe.yaml --resume --quiet" ;;
        eval) arguments="eval $inputs/model --tasks $inputs/task.jsonl --items $run/items.jsonl --threads 1 --csv" ;;
        build) arguments="data build $inputs/documents.jsonl --tokenizer $inputs/tokenizer.json --part-bytes 100
            --val-fraction 0.3 --threads 1 --overwrite --quiet --out $run/s" ;;
        sweep) arguments="sweep $inputs/sweep.yaml --quiet --threads 1" ;;
    esac
}

# How a user continues after an error.
continued() {
    arguments "$1"
    case $1 in
        train) ! [ -e "$run/r/recipe.yaml" ] || arguments="$arguments --resume" ;;
        sweep) arguments="$arguments --retry" ;;
    esac
}

# The files that a command has written, without times, sizes of memory and logs.
digest() {
    cd "$run"
    find . -type f ! -name log.txt ! -name '*.json*' | sort | xargs -r cksum
    find . -type f -name '*.json*' | sort | xargs -r sed -E -s 'F
        s/"(seconds|train_seconds|seconds_left|tokens_per_s|peak_memory)": ?[0-9.e+-]+,?//g
        s/"crc32": ?"[0-9a-f]*",?//; s/,"start":\{[^}]*\}//'
    cd "$scratch"
}

# ---- errors ----

# NAME:NUMBER of the first, second and last call on own files, of the process or thread that has most of them; from
# "PID NAME(...)" lines on standard input. strace counts the calls of each name in each process or thread.
numbers() {
    awk -v own="$own/" '
        { sub(/^ +/, "") }
        /resumed>/ || !/^[0-9]+ +[a-z0-9]+\(/ { next }
        { name = substr($2, 1, index($2, "(") - 1); total[$1, name]++ }
        index($0, own) { n[$1]++; at[$1, n[$1]] = name ":" total[$1, name]; if (n[$1] > n[best]) best = $1 }
        END {
            if (!n[best]) exit
            print at[best, 1]
            if (n[best] > 1) print at[best, 2]
            if (n[best] > 2) print at[best, n[best]]
        }'
}

# traced SYSCALLS COMMAND_OF_STRACE...: runs $arguments under strace; the status in $status.
traced() {
    status=0
    # shellcheck disable=SC2086 # words
    timeout 600 strace -f -qq "$@" "$program" $arguments >"$own/stdout" 2>"$log/stderr" </dev/null || status=$?
}

# All names that the call has.
kernel_calls() {
    case $1 in
        rename) echo "?rename,?renameat,?renameat2" ;;
        fsync) echo "?fsync,?fdatasync" ;;
        write) echo "?write,?writev,?pwrite64" ;;
        read) echo "?read,?pread64" ;;
        *) echo "?$1" ;;
    esac
}

# find_numbers COMMAND CALL: a line for each call to try.
find_numbers() {
    prepare "$1"
    arguments "$1"
    traced -y -o "$log/trace" -e "trace=$(kernel_calls "$2")"
    [ $status -eq 0 ] || fail "$(cat "$log/stderr")"
    numbers <"$log/trace" >"$log/numbers"
    ! is_sample || sed -i '$!d' "$log/numbers"
}

# with_error COMMAND CALL LINE: runs it with the error in the call of this line of the numbers; $number. A signal that ends a
# run of the sweep can interrupt a call, which is then counted twice: with new numbers once more.
with_error() {
    for try in 1 2 3 4 5; do
        [ $try -eq 1 ] || find_numbers "$1" "$2"
        number=$(sed -n "$3p" "$log/numbers")
        prepare "$1"
        arguments "$1"
        traced -y -o "$log/injected" -e "trace=${number%:*}" -e "inject=${number%:*}:error=EIO:when=${number#*:}"
        ! grep -F "$own/" "$log/injected" | grep -q INJECTED || return 0
    done
    fail "$1, $number: in $try runs no error on an own file"
}

# one COMMAND CALL LINE: adds "error" or "result" to $ends.
one() {
    with_error "$@"
    where="$1, $number"
    case $status in
        0) end=result ;;
        1)
            grep -q '^ddl: ' "$log/stderr" || fail "$where: no message: $(cat "$log/stderr")"
            end=error
            cp "$log/stderr" "$log/message"
            continued "$1"
            # shellcheck disable=SC2086 # words
            "$program" $arguments >"$own/stdout" 2>"$log/stderr" </dev/null ||
                fail "$where: cannot continue: $(cat "$log/message" "$log/stderr")"
            ;;
        *) fail "$where: status $status: $(cat "$log/stderr")" ;;
    esac
    digest >"$log/digest"
    cmp -s "$log/digest" "$log/$1.digest" ||
        fail "$where: $end with other files: $(cat "$log/stderr"; diff "$log/$1.digest" "$log/digest")"
    [ $end = error ] || cmp -s "$own/stdout" "$log/$1.stdout" ||
        fail "$where: other output: $(diff "$log/$1.stdout" "$own/stdout")"
    ends="$ends $end"
}

# The cell of the table in docs/reliability.md, whose columns are the commands.
expected() {
    column=3
    for command in $commands; do
        [ "$command" = "$1" ] || { column=$((column + 1)); continue; }
        awk -F '|' -v call="\`$2\`" -v column=$column '
            /^<!-- table: injected errors -->/ { inside = 1 }
            inside && index($2, call) > 0 { gsub(/ /, "", $column); print $column; exit }' "$source/docs/reliability.md"
    done
}

# call_of_command COMMAND CALL
call_of_command() {
    find_numbers "$1" "$2"
    ends=""
    tried=""
    lines=$(wc -l <"$log/numbers")
    for line in 1 2 3; do
        [ "$line" -le "$lines" ] || break
        one "$1" "$2" "$line"
        tried="$tried $number"
    done
    echo "$1 $2:${ends:- none} (${tried# })"
    cell=$(expected "$1" "$2")
    case $cell:$ends in
        error:*result*) fail "$1, $2: docs/reliability.md has error, found$ends" ;;
        result:*error*) fail "$1, $2: docs/reliability.md has result, found$ends" ;;
        error: | result: | either:) fail "$1, $2: docs/reliability.md has $cell, found no such call" ;;
        error:* | result:* | either:* | –:) ;;
        *) fail "$1, $2: docs/reliability.md has '$cell', found$ends" ;;
    esac
}

undisturbed() {
    for command in $commands; do
        prepare "$command"
        arguments "$command"
        # shellcheck disable=SC2086 # words
        "$program" $arguments >"$own/stdout" 2>"$log/stderr" </dev/null || fail "$command: $(cat "$log/stderr")"
        [ "$command" != eval ] || cp "$run/items.jsonl" "$inputs/items.jsonl"
        cp "$own/stdout" "$log/$command.stdout"
        digest >"$log/$command.digest"
    done
}

make_inputs
check undisturbed undisturbed
for command in $commands; do
    for call in $calls; do
        check "${command}_$call" call_of_command "$command" "$call"
    done
done
finish
