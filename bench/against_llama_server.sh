#!/bin/sh
# Compares ddl serve with llama.cpp's server on this machine: the baseline's shapes with random weights, greedy streams of
# --tokens tokens after prompts of --words words, by several clients at a time. Runs both alternately, several times, and prints
# medians: generated tokens per second, and the time to the first token (median, 99th percentile).
#
#   LLAMA_SERVER=llama-server bench/against_llama_server.sh [--size mini] [--dtype f32] [--clients "1 8 32"] [--tokens 64]
#                                                           [--words 60] [--rounds 3] [--prompts "distinct shared"]
#
# shared: three quarters of all prompts are the same. int8 is compared with llama.cpp's q8_0. llama.cpp keeps keys and values in float16, ddl in
# float32 beside float32 weights and else in bfloat16. PYTHON is a Python interpreter with gguf. Run it on an idle machine.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

python=${PYTHON:-python3}
ddl=${DDL:-build/release/ddl}
llama=${LLAMA_SERVER:-llama-server}
size=mini dtype=f32 clients="1 8 32" tokens=64 words=60 rounds=3 prompts="distinct shared"
take_options "--size --dtype --clients --tokens --words --rounds --prompts" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
command -v "$llama" >/dev/null || { echo "$0: $llama not found: set LLAMA_SERVER to llama.cpp's llama-server" >&2; exit 1; }
"$python" -c 'import gguf' 2>/dev/null || { echo "$0: $python has no gguf: pip install gguf" >&2; exit 1; }

work=$(mktemp -d)
server=""
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
theirs=$dtype
[ "$dtype" != int8 ] || theirs=q8
"$python" bench/peers/llama_model.py "$work/model.gguf" --size "$size" --dtype "$theirs" --vocabulary
"$ddl" data build data/text/tinyshakespeare.txt --tokenizer data/tokenizer --out "$work/shards" --quiet
"$ddl" train --model baseline --size "$size" --train-data "$work/shards" --tokenizer data/tokenizer --out "$work/run" --steps 1 \
    --warmup 1 --batch 1 --seq 16 --val-every 0 --quiet >/dev/null

# start NAME PORT: waits until it answers; $server.
start() {
    case $1 in
        ddl) "$ddl" serve "run=$work/run" --port "$2" --dtype "$dtype" --slots 32 --cached 8 --context 256 --queue 256 --no-log \
            >"$work/log" 2>&1 & ;;
        llama.cpp) "$llama" -m "$work/model.gguf" --port "$2" -t "$(nproc)" -np 32 -c 8192 >"$work/log" 2>&1 & ;;
    esac
    server=$!
    for _ in $(seq 100); do
        ! "$python" -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$2/health')" 2>/dev/null || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.3
    done
    echo "$0: $1 does not answer:" >&2
    tail -n 5 "$work/log" >&2
    exit 1
}

# pair KEY: both numbers of an array in a report.
pair() { sed -n "s/.*\"$1\": \[\([0-9.]*\), \([0-9.]*\)\].*/\1 \2/p"; }

processor
echo "size $size, $dtype, $tokens tokens after $words words, $rounds rounds"
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    for name in llama.cpp ddl; do
        start "$name" $((18100 + round))
        for kind in $prompts; do
            for n in $clients; do
                set -- --clients "$n" --requests $((2 * n > 8 ? 2 * n : 8)) --tokens "$tokens" --words "$words"
                [ "$kind" = distinct ] || set -- "$@" --shared
                # Other prompts than those of the settings before.
                "$python" bench/peers/serve_load.py "http://127.0.0.1:$((18100 + round))" "$@" --from $((n * 1000)) \
                    --fields '{"temperature": 0, "ignore_eos": true}' >"$work/report" || { cat "$work/log" >&2; exit 1; }
                field tokens_per_s <"$work/report" >>"$work/$name.$kind.$n.rate"
                pair first_ms <"$work/report" | { read -r middle last; echo "$middle" >>"$work/$name.$kind.$n.p50"; echo "$last" >>"$work/$name.$kind.$n.p99"; }
            done
        done
        kill "$server"
        wait "$server" 2>/dev/null || true
        server=""
    done
done
printf '%-9s %7s  %10s %8s %6s  %12s %10s  %12s %10s\n' prompts clients llama.cpp ddl ratio "first p50" "ddl" "first p99" "ddl"
for kind in $prompts; do
    for n in $clients; do
        for figure in rate p50 p99; do
            for name in llama.cpp ddl; do median <"$work/$name.$kind.$n.$figure"; done
        done | paste -s -d ' ' - | awk -v kind="$kind" -v n="$n" '{
            printf "%-9s %7d  %10.0f %8.0f %6.2f  %12.0f %10.0f  %12.0f %10.0f\n", kind, n, $1, $2, $2 / $1, $3, $4, $5, $6 }'
    done
done
