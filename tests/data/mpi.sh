# `ddl data build` by ranks that are processes: the shards of one process, also after a rank was killed.
#   sh mpi.sh PROGRAM SOURCE SCRATCH [PLUGIN]
# DDL_MPIRUN: see tests/comm/mpi.sh.
set -eu
program=$1
. "$2/tests/support/checks.sh"
. "$2/tests/comm/ranks.sh"
source=$2
ranks_tried="2 4" repeats=3 kills=5
! is_sample || ranks_tried=2 repeats=1 kills=2
scratch=$3
need_mpirun "${4:-}"

rm -rf "${scratch:?}"/*
mkdir "$scratch/text"
# About 15 parts of at most 20000 bytes, most of them parts of one file.
cat "$source"/docs/*.md | head -c 600000 | awk -v dir="$scratch/text" '
    { gsub(/[\\"\t]/, " "); text = text " " $0 }
    NR % 20 == 0 { print "{\"text\": \"" text "\"}" >(dir (NR % 100 ? "/large.jsonl" : "/small.jsonl")); text = "" }'
cp "$source/docs/tour.md" "$scratch/text/tour.txt"
gzip -n "$scratch/text/small.jsonl"

# build RANKS OUT OPTION...: the options of all builds, under mpirun.
build() {
    ranks=$1
    out=$2
    shift 2
    run_ranks "$ranks" "$program" data build "$scratch/text" --tokenizer "$source/data/tokenizer" --val-fraction 0.2 \
        --shard-tokens 20000 --part-bytes 20000 --out "$scratch/$out" "$@" >"$scratch/log" 2>&1
}

same_shards() { diff -r "$scratch/one" "$scratch/$1" || fail "$1 differs from the shards of one process"; }

ranks_build_the_shards_of_one() {
    build 1 one || fail "$(cat "$scratch/log")"
    for n in $ranks_tried; do
        build $n "ranks-$n" || fail "$(cat "$scratch/log")"
        same_shards "ranks-$n"
        [ "$(grep -c '^train  ' "$scratch/log")" -eq 1 ] || fail "not one result: $(cat "$scratch/log")"
        grep -q 'MB of text a second' "$scratch/log" || fail "not all parts are counted: $(cat "$scratch/log")"
    done
}

# Complete shards are kept, and replaced if wanted.
again() {
    build 2 ranks-2 --json || fail "$(cat "$scratch/log")"
    grep -q '"parts_encoded": 0,' "$scratch/log" || fail "$(cat "$scratch/log")"
    for _ in $(seq $repeats); do
        build 3 ranks-2 --overwrite --part-bytes 10000000 --json || fail "$(cat "$scratch/log")"
        grep -q '"complete": true' "$scratch/log" || fail "$(cat "$scratch/log")"
        ! [ -e "$scratch/ranks-2/.build" ] || fail "the folder of the build is left"
        same_shards ranks-2
    done
}

# Continues with the parts of a process outside of the job.
continued() {
    DDL_COMM=none build 1 continued --shard 1/2 || fail "$(cat "$scratch/log")"
    build 3 continued --json || fail "$(cat "$scratch/log")"
    grep -q '"parts_kept": [1-9]' "$scratch/log" || fail "no part was kept: $(cat "$scratch/log")"
    same_shards continued
}

# Rank 1 is killed at random moments of the first second, or not before the end.
killed() {
    for _ in $(seq $kills); do
        in_background build 2 killed --threads 1
        within 600 started 2 || fail "not all ranks started: $(cat "$scratch/log")"
        sleep "$(od -An -N1 -tu1 /dev/urandom | awk '{ print $1 / 256 }')"
        kill -KILL "$(cat "$scratch/rank.1")" 2>/dev/null || true
        wait $job || true
        none_left
    done
    build 3 killed || fail "$(cat "$scratch/log")"
    same_shards killed
}

errors() {
    ! build 2 errors --shard 0/2 || fail "no error"
    grep -q '^ddl: --shard: the 2 ranks divide the parts themselves: expected no --shard, found 0/2' "$scratch/log" ||
        fail "$(cat "$scratch/log")"
    # Rank 1 alone cannot begin; rank 0 does not build without it.
    # shellcheck disable=SC2016,SC2086
    ! $mpirun -n 2 sh -c 'exec "$0" data build "$1.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.txt" --tokenizer "$2" --out "$3"' \
        "$program" "$scratch/input" "$source/data/tokenizer" "$scratch/errors" >"$scratch/log" 2>&1 || fail "no error"
    [ "$(grep -c '^ddl: rank 1 of 2 (host .*): .*input.1.txt: cannot open' "$scratch/log")" -eq 1 ] ||
        fail "$(cat "$scratch/log")"
    ! [ -e "$scratch/errors" ] || fail "it has written $scratch/errors"
}
echo text >"$scratch/input.0.txt"

check ranks_build_the_shards_of_one ranks_build_the_shards_of_one
check again again
check continued continued
check killed killed
check errors errors
finish
