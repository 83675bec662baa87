#!/bin/sh
# graphs.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER: graphs on a simulated CUDA device: training, losses and generation have the
# same bits as with launches one by one, few graphs are made, and what fails is replaced or reported.
set -eu
. "$1/tests/cuda/device_support.sh"

# reporting OUT COMMAND...: standard output in OUT.out, messages in OUT.log, numbers of graphs and of their launches in OUT.report.
reporting() {
    out=$1
    shift
    CUDA_SIM_REPORT=$PWD/$out.report simulated "$@" >"$out.out" 2>"$out.log" || { cat "$out.log"; fail "$out"; }
    ! grep 'simulated CUDA device' "$out.log" || fail "$out: a message of the device"
}

# reported OUT WORD: graphs or launches.
reported() { sed -n "s/.*$2 \([0-9]*\).*/\1/p" "$1.report"; }

# train OUT OPTION...: five steps of a model with one layer.
train() {
    out=$1
    shift
    rm -rf "$out"
    # shellcheck disable=SC2086
    reporting "$out" "$ddl" train --backend cuda --hidden-size 16 $tiny_model --checkpoint-every 0 --telemetry-every 0 --batch 2 \
        --seq 8 --steps 5 --out "$out" "$@"
}

losses() { sed -n 's/^{"step":\([0-9]*\),\("\(val_\)*loss":[0-9.e-]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

# Whether two runs have the same bits: parameters and losses.
same_runs() {
    cmp "$1/model.safetensors" "$2/model.safetensors" || fail "the parameters of $1 and $2 differ"
    losses "$1" >expected
    losses "$2" >found
    [ -s expected ] && cmp expected found || { paste expected found; fail "the losses of $1 and $2 differ"; }
}

# training GRAPHS LAUNCHES OPTION...: with so many graphs, launched so often; without them, after the first could not be
# instantiated; and again in another order of threads.
training() {
    graphs=$1 launches=$2
    shift 2
    train with "$@"
    [ "$(reported with graphs) $(reported with launches)" = "$graphs $launches" ] || { cat with.report; fail "expected $graphs graphs, $launches launches"; }
    CUDA_SIM_FAIL_INSTANTIATE=1 train without "$@"
    [ "$(reported without graphs) $(reported without launches)" = '1 0' ] || { cat without.report; fail "graphs"; }
    same_runs without with
    CUDA_SIM_SEED=7 train again "$@"
    same_runs with again
}

# fused KERNELS OPTION...: the last training with the options launched these kernels of a state and of projections, and no others.
fused() {
    kernels=$1
    shift
    training 1 4 "$@"
    found=$(sed -n 's/^kernel \([a-z_]*delta[a-z_]*\|[a-z_]*_read\|hyper_bwd_write\|compress_fwd\|compress_bwd\|project_[fb]wd\|projected_norm_[fb]wd\) \([0-9]*\)$/\1 \2/p' with.report | tr '\n' ' ')
    [ "$found" = "$kernels " ] || { cat with.report; fail "expected $kernels, found $found"; }
}

# What cannot be captured is launched one by one from then on.
no_capture() {
    train with --model ddl-tc
    CUDA_SIM_FAIL_CAPTURE=1 train without --model ddl-tc
    [ "$(reported without graphs) $(reported without launches)" = '0 0' ] || { cat without.report; fail "graphs"; }
    same_runs without with
}

# failing VARIABLE NUMBER MESSAGE: a run that ends with one error.
failing() {
    rm -rf failed
    # shellcheck disable=SC2086
    ! simulated env "$1=$2" "$ddl" train --backend cuda --model baseline --hidden-size 16 $tiny_model --telemetry-every 0 --batch 2 \
        --seq 8 --steps 5 --quiet --out failed >failed.out 2>failed.txt || fail "no error"
    grep -v '^simulated CUDA device: .* are not freed$' failed.txt >failed.log
    [ "$(wc -l <failed.log)" -eq 1 ] && grep -q "^ddl: .*backend cuda: $3\$" failed.log || { cat failed.log; fail "message"; }
}

# generate OUT OPTION...: texts that end at different lengths, so that passes have four sequences, then fewer.
generate() {
    out=$1
    shift
    reporting "$out" "$ddl" generate with --backend cuda --prompt 12 --n 4 --stop 1 --max-tokens 24 --seed 3 --threads 1 --json "$@"
}

# A graph for each number of sequences, and the same texts without graphs.
generation() {
    generate texts "$@"
    [ "$(reported texts graphs)" -ge 2 ] && [ "$(reported texts graphs)" -le 5 ] && [ "$(reported texts launches)" -ge 12 ] ||
        { cat texts.out texts.report; fail "graphs"; }
    CUDA_SIM_FAIL_INSTANTIATE=1 generate direct "$@"
    [ "$(reported direct launches)" -eq 0 ] || fail "launches of graphs"
    cmp texts.out direct.out || fail "the texts differ"
}

# Sums of logarithms of many passes.
evaluation() {
    set -- "$ddl" eval with --backend cuda --text text.txt --seq 16 --batch 2 --threads 1 --json
    reporting eval "$@"
    [ "$(reported eval graphs)" -le 2 ] && [ "$(reported eval launches)" -ge 2 ] || { cat eval.report; fail "graphs"; }
    CUDA_SIM_FAIL_INSTANTIATE=1 reporting direct "$@"
    sed 's/"seconds":[0-9.e-]*//' eval.out >expected
    sed 's/"seconds":[0-9.e-]*//' direct.out >found
    cmp expected found || { cat expected found; fail "the losses differ"; }
}

make_data
seq 200 >text.txt
# Five steps of two sublayers: the first reading of a state, and the last gradient of one, have no update beside them.
check fused fused 'compress_bwd 5 compress_fwd 5 delta_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5 read_delta_bwd 10' --model ddl-cc-ec
check fused_bfloat16 fused 'delta_bwd_read 10 delta_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5' --model ddl-1 --dtype bf16
check_full over_tokens fused 'compress_bwd 5 compress_fwd 5 delta_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5 read_delta_bwd 10' --model ddl-tc --batch 4 --seq 16
check_full two_channels fused 'compress_bwd 5 compress_fwd 5 delta_fwd_read 10 project_bwd 10 projected_norm_bwd 10 projected_norm_fwd 5 read_delta_bwd 10' --model ddl-mix-ec --ddl-value-channels 2
check_full kept fused 'compress_bwd 5 compress_fwd 5 delta_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5 read_delta_bwd 10' --model ddl-cc --dtype bf16 --recompute none
check_full three_channels fused 'compress_bwd 15 compress_fwd 25 delta_bwd 10 delta_fwd 10 projected_norm_bwd 10 projected_norm_fwd 10' --model ddl-cc --ddl-value-channels 3
check fused_updates fused 'gated_bwd_read 10 gated_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5' --model gated
check_full kept_updates fused 'gated_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5' --model gated --recompute none
check_full kept_one fused 'delta_bwd 10 delta_fwd_read 10 projected_norm_bwd 10 projected_norm_fwd 5' --model ddl-1 --dtype bf16 --recompute none
check_full scale fused 'scale_fwd_read 10' --model scale --dtype bf16
check_full streams fused 'hyper_bwd_write 5 hyper_fwd_read 10' --model hyper
check_full kept_streams fused 'hyper_bwd_write 5 hyper_fwd_read 10' --model hyper --dtype bf16 --recompute none
check_full highway fused 'highway_fwd_read 10' --model highway
check_full laurel fused 'laurel_fwd_read 10' --model laurel --dtype bf16
# Two micro-batches of two sequences and one of one, each with its graph: the first writes gradients, the others add.
check accumulation training 3 12 --model baseline --global-batch 5 --clip 0.1
check bfloat16 training 1 4 --model ddl-tc --dtype bf16 --recompute block
check_full elementwise training 2 8 --model hyper --dtype bf16 --recompute elementwise --global-batch 4
check_full validation training 2 9 --model mhc --val-data shards --val-every 1 --val-tokens 16
check no_capture no_capture
check failed_launch failing CUDA_SIM_FAIL_GRAPH 2 'cuGraphLaunch: CUDA_ERROR_OUT_OF_MEMORY (out of memory)'
check lost_device failing CUDA_SIM_FAIL 130 '[A-Za-z]*: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)'
train with --model ddl-cc-ec
for format in f32 bf16 tf32 int8; do
    check "generation_$format" generation --dtype "$format"
done
check evaluation evaluation
finish
