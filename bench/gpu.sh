#!/bin/sh
# Everything that a GPU is needed for, in one call of under ten minutes: the first hour on hardware. Nothing is installed.
#
#   bench/gpu.sh [--out gpu-report] [--device cuda] [--size small] [--batch 32] [--seq 1024] [--steps 10] [--minutes 9]
#                [--models "baseline ddl-1 ..."] [--golden tests/golden]
#
# Writes to the folder `out`: device.txt (driver, device), verify.txt (test vectors), ops.txt (every op compared with ref),
# sanitizer.txt (compute-sanitizer on small ops, where it is installed), op.json, step-MODEL.json, decode-MODEL.json,
# predicted-MODEL.json, and torch-MODEL.json where PYTHON has torch with CUDA. report.md has the tables for
# docs/performance.md and docs/cuda.md: speed of each model, relative to the baseline and to the prediction, and the ops
# that take longer than predicted. What fails is in report.md too; the rest goes on. DDL is the program.
set -eu
cd "$(dirname "$0")/.."
. bench/peers/figures.sh

ddl=${DDL:-build/release/ddl}
python=${PYTHON:-python3}
out=gpu-report device=cuda size=small batch=32 seq=1024 steps=10 minutes=9 models="" golden=tests/golden
take_options "--out --device --size --batch --seq --steps --minutes --models --golden" "$@"
command -v "$ddl" >/dev/null || { echo "$0: $ddl not found: run ./dev build first" >&2; exit 1; }
[ -n "$models" ] || models="baseline ddl-1 ddl-cc ddl-cc-ec scale gated highway hyper mhc laurel attnres denseformer resformer"
mkdir -p "$out"
begin=$(date +%s)
report=$out/report.md
: >"$report"

left() { echo $((60 * minutes - $(date +%s) + begin)); }
# A program, in the time that is left.
bounded() { timeout "$(left)" "$@"; }

# part NAME FILE COMMAND...: runs the command in the time that is left, its output into FILE; notes a failure.
part() {
    part=$1 file=$out/$2
    shift 2
    [ "$(left)" -gt 5 ] || { echo "- $part: skipped, the time is over" >>"$report"; return 1; }
    echo "$part" >&2
    status=0
    "$@" >"$file" 2>&1 || status=$?
    [ $status -eq 0 ] || {
        echo "- $part: failed with status $status: $(tail -n 1 "$file" | cut -c 1-200)" >>"$report"
        mv "$file" "$file.failed"
        return 1
    }
}

bench() { bounded "$ddl" bench "$@" --size "$size" --backend "$device" --dtype bf16 --no-roofline --json; }
step() { bench step --model "$1" --batch "$batch" --seq "$seq" --steps "$steps" --ops; }
decode() { bench decode --model "$1" --batch 32 --seq 512 --steps 64; }
# Rates for the prediction: those that this device reaches.
predict() {
    bounded "$ddl" bench step --model "$1" --size "$size" --batch "$batch" --seq "$seq" --dtype bf16 --json \
        --device-model "$(field copy <"$out/op.json" | awk '{ print $1 / 1e12 }')TB/s $(field gemm_bf16 <"$out/op.json" | awk '{ print $1 / 1e12 }')TFLOP/s 1.5us"
}

describe() {
    "$ddl" --version --verbose
    "$ddl" info --backends
    ! command -v nvidia-smi >/dev/null || nvidia-smi
}

part "device" device.txt describe || true
"$ddl" info --backends | grep -q "^  $device.* $device" || { cat "$out/device.txt"; echo "$0: no device $device" >&2; exit 1; }
name=$("$ddl" info --backends | sed -n "s/^  $device[:0-9]* *[^(]*(\(.*\))\$/\1/p" | sed q)
part "ops compared with ref" ops.txt bounded "$ddl" verify --ops --backend "$device" || true
part "test vectors" verify.txt bounded "$ddl" verify "$golden" --backend "$device" || true
part "test vectors in bfloat16" verify-bf16.txt bounded "$ddl" verify "$golden" --backend "$device" --dtype bf16 || true
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
        part "compute-sanitizer $tool" "sanitizer-$tool.txt" bounded compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$ddl" verify --ops --backend "$device" || true
    done
fi
part "rates and ops" op.json bounded "$ddl" bench op --size "$size" --backend "$device" --seconds 0.05 --json || true
for model in $models; do
    part "step of $model" "step-$model.json" step "$model" || continue
    part "prediction of $model" "predicted-$model.json" predict "$model" || true
done
for model in baseline ddl-1 ddl-cc; do
    part "decoding with $model" "decode-$model.json" decode "$model" || true
done
if "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    for model in baseline ddl-1 ddl-cc; do
        part "PyTorch, $model" "torch-$model.json" bounded "$python" bench/peers/torch_peer.py --model "$model" --size "$size" \
            --batch "$batch" --seq "$seq" --mode compile --dtype bf16 --steps "$steps" --device cuda || true
    done
fi

{
    echo
    echo "$name, $size, $batch × $seq tokens, bfloat16, $(date +%F). Test vectors: $(tail -qn 1 "$out"/verify.txt*); ops: $(tail -qn 1 "$out"/ops.txt*)."
    echo
    echo "| model | tokens/s | / baseline | / predicted | GiB | / baseline | PyTorch tokens/s | ratio |"
    echo "|---|---|---|---|---|---|---|---|"
    for model in $models; do
        [ -s "$out/step-$model.json" ] || continue
        [ -s "$out/step-baseline.json" ] || continue
        torch=""
        [ ! -s "$out/torch-$model.json" ] || torch=$(field tokens_per_s <"$out/torch-$model.json")
        predicted=0
        [ ! -s "$out/predicted-$model.json" ] || predicted=$(field predicted_tokens_per_s <"$out/predicted-$model.json")
        paste -d ' ' - - - - - <<END | awk -v m="$model" -v torch="$torch" '{
            printf "| `%s` | %d | %.2f | %s | %.2f | %.2f | %s | %s |\n", m, $1, $1 / $2, $5 ? sprintf("%.2f", $1 / $5) : "", $3, $3 / $4,
                torch, torch ? sprintf("%.2f", $1 / torch) : "" }'
$(field tokens_per_s <"$out/step-$model.json")
$(field tokens_per_s <"$out/step-baseline.json")
$(field peak_gib <"$out/step-$model.json")
$(field peak_gib <"$out/step-baseline.json")
$predicted
END
    done
    echo
    echo "Ops of a step that take more than 1.2 times their prediction:"
    echo
    echo "| model | op | ms | predicted | ratio |"
    echo "|---|---|---|---|---|"
    for model in $models; do
        [ -s "$out/step-$model.json" ] || continue
        [ -s "$out/predicted-$model.json" ] || continue
        shares "$out/predicted-$model.json" >"$out/predicted.txt"
        shares "$out/step-$model.json" | awk -v m="$model" 'NR == FNR { predicted[$1] = $2; next }
            $1 in predicted && $2 > 1.2 * predicted[$1] { printf "| `%s` | %s | %.3f | %.3f | %.1f |\n", m, $1, 1e3 * $2, 1e3 * predicted[$1], $2 / predicted[$1] }' \
            "$out/predicted.txt" -
    done
} >>"$report"
cat "$report"
