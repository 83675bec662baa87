#!/bin/sh
# Compares decoding with llama.cpp on this machine: the baseline's shapes at size small with random weights, one
# sequence, a step of eight sequences, and the prefill of one prompt. Runs both alternately, several times, and prints
# the ratio of the medians (above 1: ddl is faster).
#
#   bench/against_llama.sh [--dtypes "f32 bf16 int8"] [--prompt 128] [--steps 60] [--threads 2] [--rounds 3]
#
# int8 is compared with llama.cpp's q8_0. llama.cpp keeps keys and values in float16, ddl in float32 beside float32
# weights and else in bfloat16. PYTHON is a Python interpreter with llama-cpp-python and gguf. Run it on an idle machine.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

python=${PYTHON:-python3}
ddl=${DDL:-build/release/ddl}
dtypes="f32 bf16 int8" prompt=128 steps=60 threads=2 rounds=3
take_options "--dtypes --prompt --steps --threads --rounds" "$@"
[ -x "$ddl" ] || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
"$python" -c 'import gguf, llama_cpp' 2>/dev/null || {
    echo "$0: $python has no llama_cpp or no gguf. To install them (compiles llama.cpp, about ten minutes on two cores):" >&2
    echo "  python3 -m venv peers && peers/bin/pip install llama-cpp-python gguf && PYTHON=peers/bin/python $0 ..." >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
processor
echo "size small, prompt $prompt, $steps steps, $threads threads, $rounds rounds"
printf '%-6s %-22s %12s %12s %8s\n' dtype "" llama.cpp ddl ratio
for dtype in $dtypes; do
    theirs=$dtype round=0
    [ "$dtype" != int8 ] || theirs=q8
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        "$python" bench/peers/llama_peer.py --dtype "$theirs" --prompt "$prompt" --steps "$steps" --threads "$threads" \
            >"$work/llama" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
        "$ddl" bench decode --size small --dtype "$dtype" --seq "$prompt" --steps "$steps" --batch 8 \
            --threads "$threads" --no-roofline --json >"$work/ddl"
        field one_ms <"$work/llama" >>"$work/llama.$dtype.one"
        field eight_ms <"$work/llama" >>"$work/llama.$dtype.eight"
        field prefill_tokens_per_s <"$work/llama" >>"$work/llama.$dtype.prefill"
        field tokens_per_s <"$work/ddl" | awk '{ print 1000 / $1 }' >>"$work/ddl.$dtype.one"
        field batch_tokens_per_s <"$work/ddl" | awk '{ print 8000 / $1 }' >>"$work/ddl.$dtype.eight"
        field prefill_tokens_per_s <"$work/ddl" >>"$work/ddl.$dtype.prefill"
    done
    for figure in one eight prefill; do
        a=$(median <"$work/llama.$dtype.$figure") b=$(median <"$work/ddl.$dtype.$figure")
        awk -v dtype="$dtype" -v figure="$figure" -v a="$a" -v b="$b" 'BEGIN {
            name["one"] = "one sequence, ms"; name["eight"] = "eight sequences, ms"; name["prefill"] = "prefill, tokens/s"
            printf "%-6s %-22s %12.2f %12.2f %8.2f\n", dtype, name[figure], a, b, figure == "prefill" ? b / a : a / b
        }'
    done
done
