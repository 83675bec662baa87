#!/bin/sh
# Everything that a GPU is needed for, in one call of under ten minutes: the first hour on hardware. Nothing is installed.
#
#   bench/gpu.sh [--out gpu-report] [--device cuda] [--size small] [--batch 32] [--seq 1024] [--steps 10] [--minutes 8]
#                [--models "baseline ddl-1 ..."] [--peers "baseline ddl-cc"] [--golden tests/golden] [--ops "NAME ..."]
#
# ./dev gpu-bundle packs the program, this script and what it reads for a machine that has none of it.
# Writes to the folder `out`: device.txt (driver, device), ops.txt (every op, or --ops, compared with ref), verify.txt and
# verify-bf16.txt (test vectors), op.json, step-MODEL.json, decode-MODEL.json, predicted-MODEL.json, torch-MODEL.json of
# --peers where PYTHON has torch with CUDA, and sanitizer-TOOL.txt (compute-sanitizer on a few ops, where it is installed).
# report.md has the tables for docs/performance.md and docs/cuda.md: ops that take longer than their bytes and operations,
# decoding, speed of each model, relative to the baseline and to the prediction, and what failed; out.tar.gz has the folder.
# Each part has a limit of time, and the next ones go on where it fails. The status is 1 if a part failed or was skipped.
# DDL is the program.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

ddl=${DDL:-}
[ -n "$ddl" ] || for ddl in bin/ddl build/cuda/ddl build/release/ddl; do [ ! -x $ddl ] || break; done
python=${PYTHON:-python3}
out=gpu-report device=cuda size=small batch=32 seq=1024 steps=10 minutes=8 models="" peers="baseline ddl-cc" golden=tests/golden ops=""
take_options "--out --device --size --batch --seq --steps --minutes --models --peers --golden --ops" "$@"
command -v "$ddl" >/dev/null || { echo "$0: $ddl not found: run ./dev gpu-bundle first" >&2; exit 1; }
# Without --models the other named models follow, as far as there is time.
others=
if [ -z "$models" ]; then
    models="baseline ddl-1 ddl-cc ddl-cc-ec gated attnres mhc hyper scale highway laurel denseformer resformer"
    for model in $(named_models "$ddl"); do
        case " $models " in *" $model "*) ;; *) others="$others $model" ;; esac
    done
fi
# PyTorch's packages have cuBLASLt: the folder of the environment says where.
[ -n "${VIRTUAL_ENV:-}" ] || { VIRTUAL_ENV=$("$python" -c 'import sys; print(sys.prefix)') && export VIRTUAL_ENV; } || :
mkdir -p "$out"
begin=$(date +%s)
report=$out/report.md
failures=$out/failures.txt
: >"$failures"

left() { echo $((60 * minutes - $(date +%s) + begin)); }

# part NAME FILE SECONDS COMMAND...: runs the command for SECONDS at most, its output into FILE; notes a failure.
part() {
    part=$1 file=$out/$2 limit=$3
    shift 3
    rest=$(left)
    [ "$rest" -gt 5 ] || { echo "- $part: skipped, the time is over" >>"$failures"; return 1; }
    [ "$limit" -lt "$rest" ] || limit=$rest
    echo "$part" >&2
    status=0
    timeout -k 5 "$limit" "$@" >"$file" 2>&1 || status=$?
    [ $status -eq 0 ] || {
        [ $status -ne 124 ] || echo "stopped after $limit s" >>"$file"
        echo "- $part: failed with status $status: $(tail -n 1 "$file" | cut -c 1-200)" >>"$failures"
        mv "$file" "$file.failed"
        return 1
    }
}

# bench KIND MODEL FILE SECONDS OPTION...: a report of ddl bench about a model.
bench() {
    kind=$1 model=$2 file=$3 limit=$4
    shift 4
    part "$kind with $model ($file)" "$file-$model.json" "$limit" "$ddl" bench "$kind" --model "$model" --size "$size" \
        --dtype bf16 --json "$@"
}
# of FILE NAME [FORMAT]: a figure of a report; empty if there is none.
of() { [ ! -s "$out/$1" ] || field "$2" <"$out/$1" | awk -v format="${3:-%.9g}" '{ printf format, $1 }'; }

"$ddl" --version --verbose >"$out/device.txt" 2>&1
"$ddl" info --backends >"$out/backends.txt" 2>&1
cat "$out/backends.txt" >>"$out/device.txt"
! command -v nvidia-smi >/dev/null || { nvidia-smi; nvidia-smi -q; } >>"$out/device.txt" 2>&1 || :
# Of several devices the first is listed as cuda:0.
name=$(sed -n "s/^  ${device%:0}\(:0\)\{0,1\}  *cuda:[0-9]* (\(.*\))\$/\2/p" "$out/backends.txt" | sed q)
[ -n "$name" ] || { cat "$out/device.txt"; echo "$0: no device $device" >&2; exit 1; }

# shellcheck disable=SC2086
part "ops compared with ref" ops.txt 60 "$ddl" verify --ops $ops --backend "$device" || :
part "test vectors" verify.txt 60 "$ddl" verify "$golden" --backend "$device" || :
part "test vectors in bfloat16" verify-bf16.txt 60 "$ddl" verify "$golden" --backend "$device" --dtype bf16 || :
part "rates and ops" op.json 60 "$ddl" bench op --size "$size" --batch "$batch" --seq "$seq" --backend "$device" \
    --seconds 0.05 --json || :
# The rates that this device reaches, else those of an H100.
copy=$(of op.json copy | awk '{ print $1 / 1e12 }') products=$(of op.json gemm_bf16 | awk '{ print $1 / 1e12 }')
copy=${copy:-3.0} products=${products:-790}
has_torch=$("$python" -c 'import torch; print(torch.cuda.is_available())' 2>/dev/null) || has_torch=False
# step MODEL: its time and the predicted one.
step() {
    bench step "$1" step 40 --batch "$batch" --seq "$seq" --steps "$steps" --backend "$device" --no-roofline --ops || :
    bench step "$1" predicted 20 --batch "$batch" --seq "$seq" --device-model "${copy}TB/s ${products}TFLOP/s 1.5us" || :
    warning=$(sed -n 's/.*"warning": "\([^"]*\)".*/\1/p' "$out/step-$1.json" 2>/dev/null) || :
    [ -z "$warning" ] || echo "- step of $1: $warning" >>"$failures"
}
for model in $models; do
    step "$model"
    case " $peers " in *" $model "*) ;; *) continue ;; esac
    bench decode "$model" decode 30 --batch 32 --seq 512 --steps 64 --backend "$device" --no-roofline || :
    [ "$has_torch" = False ] ||
        part "PyTorch, $model" "torch-$model.json" 90 "$python" bench/peers/torch_peer.py --model "$model" --size "$size" \
            --batch "$batch" --seq "$seq" --mode compile --dtype bf16 --steps "$steps" --device cuda || :
done
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
        part "compute-sanitizer $tool" "sanitizer-$tool.txt" 45 compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$ddl" verify --ops rmsnorm_fwd delta_fwd delta_bwd attention_fwd matmul_bf16 --backend "$device" || :
    done
fi

for model in $others; do
    step "$model"
done
models="$models $others"

# What an op that runs alone takes at least: its bytes and its operations, at the rates above, and 10 us a call.
slow_ops() {
    for model in $models; do
        [ ! -s "$out/step-$model.json" ] || profiled "$out/step-$model.json" |
            awk -v m="$model" -v copy="$copy" -v products="$products" '{
                bytes = $5 / copy / 1e12; flops = $4 / products / 1e12; least = (bytes > flops ? bytes : flops) + 1e-5 * $3
                if ($2 > 1.2 * least) printf "| `%s` | %s | %.3f | %.3f | %.1f |\n", m, $1, 1e3 * $2, 1e3 * least, $2 / least }'
    done
}
ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN { if (a > 0 && b > 0) printf "%.2f", a / b }'; }
{
    echo "$name, $size, $batch × $seq tokens, bfloat16, $(date +%F). Copy $copy TB/s, products $products TFLOP/s."
    echo "Ops: $(tail -qn 1 "$out"/ops.txt*); test vectors: $(tail -qn 1 "$out"/verify.txt*); bfloat16: $(tail -qn 1 "$out"/verify-bf16.txt*)."
    echo
    echo "Ops that take, one by one, more than 1.2 times the time of their bytes or operations:"
    echo
    echo "| model | op | ms | at least | ratio |"
    echo "|---|---|---|---|---|"
    slow_ops
    echo
    echo "| model | decoding, tokens/s | 32 sequences, tokens/s |"
    echo "|---|---|---|"
    for model in $peers; do
        [ ! -s "$out/decode-$model.json" ] ||
            echo "| \`$model\` | $(of "decode-$model.json" tokens_per_s %.0f) | $(of "decode-$model.json" batch_tokens_per_s %.0f) |"
    done
    echo
    echo "| model | tokens/s | / baseline | / predicted | GiB | / baseline | PyTorch tokens/s | ratio |"
    echo "|---|---|---|---|---|---|---|---|"
    for model in $models; do
        step=step-$model.json
        speed=$(of "$step" tokens_per_s) torch=$(of "torch-$model.json" tokens_per_s)
        [ -z "$speed" ] || echo "| \`$model\` | $(of "$step" tokens_per_s %.1f) |" \
            "$(ratio "$speed" "$(of step-baseline.json tokens_per_s)") |" \
            "$(ratio "$speed" "$(of "predicted-$model.json" predicted_tokens_per_s)") |" \
            "$(of "$step" peak_gib %.2f) | $(ratio "$(of "$step" peak_gib)" "$(of step-baseline.json peak_gib)") |" \
            "$(of "torch-$model.json" tokens_per_s %.1f) | $(ratio "$speed" "$torch") |"
    done
    [ ! -s "$failures" ] || { echo; echo "Failed or left out:"; echo; cat "$failures"; }
} >"$report"
tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
cat "$report"
[ ! -s "$failures" ]
