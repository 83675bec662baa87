#!/bin/sh
# models.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER: commands on a simulated CUDA device compared with the CPU: a model's loss in
# each format of the weights, and training under each recompute choice; training with TF32; test vectors in bfloat16; what
# inspect, ablate, tasks and graft print.
set -eu
. "$1/tests/cuda/device_support.sh"

# train BACKEND OPTION...: two steps in run_BACKEND; standard error in out.
train() {
    backend=$1
    shift
    rm -rf "run_$backend"
    # shellcheck disable=SC2086
    simulated "$ddl" train --backend "$backend" --model ddl-cc-ec --hidden-size 16 $tiny_model --batch 2 --seq 8 --steps 2 \
        --out "run_$backend" "$@" >out 2>&1 ||
        { cat out; fail "training on $backend"; }
}

# A width of the MLP that is not a multiple of 8: products of bfloat16 read and write aligned rows all the
# same: activations are stored so, and a weight is copied for products with at least 512 rows.
aligned_rows() {
    for backend in cpu cuda; do
        CUDA_SIM_ALIGNED_ROWS=1 train "$backend" --dtype bf16 --mlp-size 22 --vocab-size 272 --batch 64 --log-every 1
        grep -o 'step 2/2  loss [0-9.]*' out >"loss_$backend" || { cat out; fail "no loss"; }
    done
    awk '{ loss[NR] = $4 } END { d = loss[1] - loss[2]; exit !(NR == 2 && d * d < 1e-6) }' loss_cpu loss_cuda ||
        { cat loss_cpu loss_cuda; fail "the loss differs"; }
}

# The gradients of the first step, and the loss of the second to five digits.
recompute() {
    for backend in cpu cuda; do
        train "$backend" --recompute "$1" --log-every 1
        grep -o 'step 2/2  loss [0-9.]*' out >"loss_$backend" || { cat out; fail "no loss"; }
    done
    cmp loss_cpu loss_cuda || fail "the loss differs"
    same_gradients run_cpu run_cuda
}

# simulated_memory WORD STEPS OPTION...: of what the simulated device reports of a run: bytes, or allocations.
simulated_memory() {
    word=$1 steps=$2
    shift 2
    CUDA_SIM_REPORT=$PWD/report train cuda --steps "$steps" "$@"
    sed -n "s/.*$word \([0-9]*\).*/\1/p" report
}

# predicted DRIVER_FOLDER OPTION...: bytes that a dry run predicts, without those of the driver and its libraries, which are
# not simulated.
predicted() {
    LD_LIBRARY_PATH=$1
    shift
    export LD_LIBRARY_PATH
    "$ddl" train --backend cuda --hidden-size 16 --num-hidden-layers 1 --num-attention-heads 1 --head-dim 16 --vocab-size 270 \
        --block-size 16 --batch 2 --seq 8 --val-every 0 --steps 1 --dry-run --json --quiet "$@" >plan.json || fail "no plan"
    total=$(sed -n 's/.*"memory":{[^}]*"total":\([0-9]*\).*/\1/p' plan.json)
    echo $((total - 512 * 1024 * 1024))
}

# What a dry run predicts is what is allocated on the device, but for the padding of each tensor to 64 bytes in four arrays:
# parameters, gradients and both moments. 32 MiB are cuBLASLt's workspace. Without the device it predicts the scratch of the
# largest GPU.
memory() {
    set -- --warmup 0 "$@"
    found=$(simulated_memory bytes 1 "$@") plan=$(predicted "$driver" "$@") without=$(predicted '' "$@" --device-memory 1)
    tensors=$(head -c 20000 run_cuda/model.safetensors | grep -ao '"data_offsets"' | wc -l)
    awk -v plan="$plan" -v found="$found" -v tensors="$tensors" 'BEGIN {
        exit !(found > 2^25 && found >= plan && found - plan <= 4 * 60 * tensors) }' ||
        fail "predicted $plan bytes, allocated $found, $tensors tensors"
    [ "$without" -ge "$plan" ] || fail "predicted $without bytes without the device, $plan with it"
}

# dry_run_error NEEDED FREE OPTION...: NEEDED GiB are more than FREE; the plan is printed, and the error has options with which the run fits.
dry_run_error() {
    needed=$1 free=$2
    shift 2
    ! simulated "$ddl" train --backend cuda --size small --model baseline --batch 8 --dry-run "$@" >plan.txt 2>error || fail "no error"
    grep -q 'workspace' plan.txt || { cat plan.txt; fail "no plan"; }
    grep -q "^ddl: the run needs $needed GiB of memory, backend cuda has $free GiB free; it fits with --recompute block or --batch 4\$" error ||
        { cat error; fail "message"; }
    [ "$(wc -l <error)" -eq 1 ] || { cat error; fail "more than a line"; }
}

# The device's memory, and that of one that is not there.
too_little_memory() {
    CUDA_SIM_MEMORY=9000000000 CUDA_SIM_BUSY=4000000000 dry_run_error 6.3 4.7
    driver='' dry_run_error 6.3 5.0 --device-memory 5
    ! CUDA_SIM_DEVICES=0 simulated "$ddl" train --backend cuda --model baseline --dry-run --quiet 2>error || fail "no error"
    grep -q '^ddl: backend cuda: .*there is no NVIDIA GPU.*; --device-memory GIB plans without a device' error || { cat error; fail "no option"; }
}

steps_allocate_nothing() {
    two=$(simulated_memory allocations 2) four=$(simulated_memory allocations 4)
    [ "$two" -gt 0 ] && [ "$two" -eq "$four" ] || fail "$two allocations in two steps, $four in four"
}

# utilization DTYPE CAPABILITY TFLOPS: the peak rate of the simulated device, with 3 multiprocessors at 1 GHz, in the header; each
# logged step's share of it.
utilization() {
    CUDA_SIM_CAPABILITY=$2 train cuda --dtype "$1" --log-every 1
    grep -q ", dtype $1, at most $3 TFLOP/s\$" out || { cat out; fail "no rate $3 in the header"; }
    grep -q 'tok/s  MFU [0-9.]*%' out || { cat out; fail "no MFU in the line of a step"; }
    sed -n '/"mfu"/ s/.*"tokens":\([0-9]*\),"flops":\([0-9.e+]*\),.*"tokens_per_s":\([0-9.e+]*\),"mfu":\([0-9.e-]*\),.*/\1 \2 \3 \4/p' \
        run_cuda/metrics.jsonl >shares
    [ "$(wc -l <shares)" -eq 2 ] || { cat run_cuda/metrics.jsonl; fail "no share"; }
    awk -v peak="$3" '{ e = $4 / ($3 * $2 / $1 / (peak * 1e12)) - 1 } e * e > 1e-6 { exit 1 }' shares || { cat shares; fail "another share"; }
}

# In both dtypes and on devices of several generations; a CPU has none.
peak_rates() {
    utilization f32 90 0.768
    utilization tf32 90 6.144
    utilization bf16 90 12.29
    utilization bf16 80 6.144
    utilization bf16 89 3.072
    utilization bf16 103 24.58
    train cpu
    ! grep -q 'MFU\|TFLOP' out || { cat out; fail "a rate on the CPU"; }
    ! grep -q mfu run_cpu/metrics.jsonl || fail "a share on the CPU"
}

# Two runs at a time are on two devices; the third has that of the run that ended first.
sweep() {
    cat >sweep.yaml <<-'END'
	base: {backend: cuda, model: baseline, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 1, head_dim: 16,
	  vocab_size: 270, block_size: 16, tokenizer: tokenizer.json, train_data: shards, val_every: 0, batch: 2, seq: 8, steps: 2,
	  warmup: 1, threads: 1}
	seeds: [0, 1, 2]
	out: runs
	END
    rm -rf runs
    CUDA_SIM_DEVICES=2 simulated "$ddl" sweep sweep.yaml --jobs 2 >out 2>&1 || { cat out; fail "sweep"; }
    for seed in 0 1 2; do grep -o '"backend":"cuda:[01]' "runs/run_seed=$seed/metrics.jsonl"; done >devices
    [ "$(head -n 2 devices | sort | tr -d '\n')" = '"backend":"cuda:0"backend":"cuda:1' ] && [ "$(wc -l <devices)" -eq 3 ] ||
        { cat devices; fail "other devices"; }
}

# loss_of BACKEND FORMAT: of the model in run_cpu.
loss_of() {
    simulated "$ddl" eval run_cpu --backend "$1" --dtype "$2" --text text.txt --seq 16 --max-tokens 32 --threads 1 --json >loss ||
        fail "eval on $1"
    sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' loss
}

# Losses of the same weights differ by float32's roundings, which in bfloat16 put some numbers on the other side of a tie
# (base/noise.h: limit 3 sqrt(2)).
weights() {
    exact=$(loss_of cpu f32) cpu=$(loss_of cpu "$1") cuda=$(loss_of cuda "$1")
    awk -v exact="$exact" -v cpu="$cpu" -v cuda="$cuda" -v format="$1" 'function size(x) { return x < 0 ? -x : x }
        BEGIN { exit !(cuda > 0 && size(cuda - cpu) <= 1e-6 * cpu + (format == "bf16" ? 4.24 * size(cpu - exact) : 0)) }' ||
        fail "loss on cuda $cuda, on cpu $cpu, in float32 $exact"
}

# kept NAME OPTION...: trains in run_NAME, with so many rows that cuBLASLt has products of the forward pass too.
kept() {
    name=$1
    shift
    train cuda --batch 9 "$@"
    rm -rf "run_$name"
    mv run_cuda "run_$name"
}

# CUDA_SIM_EXACT_TF32 takes the roundings away: then tf32 has the bits of f32.
tf32() {
    kept f32
    kept tf32 --dtype tf32
    grep -q ', dtype tf32, ' out && grep -q '^dtype: tf32$' run_tf32/recipe.yaml || { cat out; fail "the run does not name tf32"; }
    CUDA_SIM_EXACT_TF32=1 kept exact --dtype tf32
    cmp run_f32/model.safetensors run_exact/model.safetensors || fail "tf32 without roundings is not f32"
    ! cmp -s run_f32/model.safetensors run_tf32/model.safetensors || fail "tf32 does not round"
    for run in f32 tf32; do
        sed -n 's/^{"step":2,"loss":\([0-9.]*\).*/\1/p' "run_$run/metrics.jsonl"
    done >losses
    awk 'NR == 1 { f32 = $1 } NR == 2 { d = $1 - f32 } END { exit !(NR == 2 && d != 0 && d * d < 1e-6 * f32 * f32) }' losses ||
        { cat losses; fail "losses in f32 and tf32"; }
    "$ddl" eval run_tf32 --backend cpu --text text.txt --seq 16 --max-tokens 32 --threads 1 --json >loss || fail "eval on cpu"
}

# Roundings to TF32 change nothing in f32 and bf16.
no_tf32() {
    for format in f32 bf16; do
        kept "$format" --dtype "$format"
        CUDA_SIM_EXACT_TF32=1 kept exact --dtype "$format"
        cmp "run_$format/model.safetensors" run_exact/model.safetensors || fail "$format uses TF32"
    done
}

# figures COMMAND...: what it prints of the model in run_cpu has the same figures on cpu and cuda, up to roundings (see
# same_gradients), and the same words.
figures() {
    for backend in cpu cuda; do
        rm -rf grafted
        simulated "$ddl" "$@" --backend "$backend" --threads 1 --json >out 2>error || { cat error; fail "$1 on $backend"; }
        grep -o '"\(loss\|step\|write\|erase\|beta_mean\|channel_rms\|loss_before\|acc\|behavior\|rule\)":[^,}]*' out | tr -d '[' >"figures_$backend"
    done
    paste -d : figures_cpu figures_cuda | awk -F : '
        $2 ~ /^[-0-9.e]+$/ { d = $2 - $4; size = $2 < 0 ? -$2 : $2; wrong = (d < 0 ? -d : d) > 1e-5 * size; numbers++ }
        $2 !~ /^[-0-9.e]+$/ { wrong = $2 != $4 }
        wrong || $1 != $3 { print; bad = 1 }
        END { exit bad || !numbers }' || fail "$1 differs"
}

tasks() {
    printf '{"context": "1\\n2\\n3\\n", "target": "4"}\n{"context": "7\\n8\\n", "target": "9"}\n' >own.jsonl
    figures eval run_cpu --tasks own.jsonl
}

graft() {
    train cpu --model baseline
    rm -rf run_add
    mv run_cpu run_add
    figures graft run_add --layers 0 --val-data shards --val-tokens 32 --seq 16 --out grafted
}

# A model in bfloat16 whose gradients cancel: roundings of the softmax weights exceed the limits.
canceling() { simulated "$ddl" verify "$source/tests/golden/hyper" --backend cuda --dtype bf16 >model.txt || { cat model.txt; fail "the model differs"; }; }

make_data
seq 80 >text.txt
for choice in none elementwise block; do
    check "recompute_$choice" recompute "$choice"
done
for model in baseline ddl-cc-ec hyper; do
    check "memory_$model" memory --model "$model"
done
check memory_bf16 memory --model ddl-tc --dtype bf16 --recompute block
check aligned_rows aligned_rows
check too_little_memory too_little_memory
check steps_allocate_nothing steps_allocate_nothing
check peak_rates peak_rates
check sweep sweep
for format in f32 bf16 int8; do
    check "weights_$format" weights "$format"
done
check inspect figures inspect run_cpu --text text.txt --seq 16 --tokens 32 --spectrum-tokens 0
check ablate figures ablate run_cpu --text text.txt --seq 16
check tasks tasks
check graft graft
check tf32 tf32
check no_tf32 no_tf32
check canceling canceling
finish
