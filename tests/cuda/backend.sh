#!/bin/sh
# backend.sh SOURCE PROGRAM PLUGIN DRIVER_FOLDER MEMORY_TEST CONTEXT_TEST LAWS_TEST: the CUDA backend on simulated devices: its
# ops compared with `ref`, their laws, its memory, transfers and events, sessions with long contexts, and its error messages.
set -eu
. "$1/tests/cuda/device_support.sh"
memory=$5
long_context=$6
laws=$7

# ops DEVICE WITHOUT_ALGORITHM NAME...: the ops whose names contain one of these, or all. With WITHOUT_ALGORITHM 1 cuBLASLt
# has none for any product. The devices are among those with the least shared memory.
ops() {
    device=$1 without=$2 expected=${3:-rmsnorm_bwd}
    shift 2
    CUDA_SIM_DEVICES=2 CUDA_SIM_CAPABILITY=89 CUDA_SIM_SEED=$device CUDA_SIM_NO_ALGORITHM=$without simulated "$ddl" verify --ops "$@" \
        --backend "cuda:$device" >ops.txt 2>&1 || { cat ops.txt; fail "an op differs"; }
    ! grep 'simulated CUDA device' ops.txt || fail "a message of the device"
    grep -q "$expected.*PASS" ops.txt || fail "$expected was not tested"
}

# `ddl info` lists each device, and what is missing where there is none.
listed() {
    CUDA_SIM_DEVICES=2 simulated "$ddl" info --backends >list
    grep -q '^  cpu  *cpu (' list && grep -q '^  cuda:1  *cuda:1 (simulated GPU, 9.0, 4.0 GiB)$' list || { cat list; fail "no device"; }
    CUDA_SIM_DEVICES=0 simulated "$ddl" info --backends >list
    grep -q '^  cuda  *not usable: .*there is no NVIDIA GPU' list || { cat list; fail "no reason"; }
    DDL_BACKEND_PLUGIN='' "$ddl" info --backends --json | grep -q '"name":"cuda","usable":false' || fail "cuda is not listed"
}

# The baseline model: loss, gradients, decoding and a training step.
model() { simulated "$ddl" verify "$source/tests/golden/add" --backend cuda >model.txt || { cat model.txt; fail "the model differs"; }; }

# In bfloat16, sequences of one token: the softmax weight is 1, and the gradients of queries and keys are 0.
one_token() { simulated "$ddl" verify "$source/tests/golden/ddl-tc-one-token" --backend cuda --dtype bf16 >model.txt || { cat model.txt; fail "the model differs"; }; }

# cuBLASLt that the dynamic linker does not load is found in a Python environment, and reported where there is none.
cublaslt() {
    packages=environment/lib/python3.11/site-packages/nvidia/cublas/lib
    mkdir -p no_cublaslt $packages
    ln -sf "$driver/libcuda.so.1" no_cublaslt/libcuda.so.1
    : >no_cublaslt/libcublasLt.so.13
    ln -sf "$driver/libcublasLt.so.13" $packages/libcublasLt.so.13
    VIRTUAL_ENV=$PWD/environment LD_LIBRARY_PATH=$PWD/no_cublaslt "$ddl" info --backends >list
    grep -q '^  cuda  *cuda:0 (simulated GPU' list || { cat list; fail "no device"; }
    [ ! -e /usr/local/cuda/lib64/libcublasLt.so.13 ] || return 0
    VIRTUAL_ENV='' LD_LIBRARY_PATH=$PWD/no_cublaslt "$ddl" info --backends >list
    grep -q 'cuBLASLt cannot be loaded (.*): install the libraries of CUDA 13' list || { cat list; fail "no reason"; }
}

# train_wide BACKEND CHANNELS: two steps of a model with so many value channels.
train_wide() {
    # shellcheck disable=SC2086
    simulated "$ddl" train --backend "$1" --model ddl-tc --ddl-value-channels "$2" --hidden-size 8 $tiny_model --batch 1 --seq 4 \
        --steps 2 --out "run_$1" >out 2>&1
}

# The most channels of an odd number are trained as on the CPU, and one more is rejected.
channels() {
    rm -rf run_cpu run_cuda
    make_data
    ! train_wide cuda 513 || fail "513 channels"
    [ "$(cat out)" = "ddl: backend cuda: value channels: expected at most 512, 1024 if even, 2048 if a multiple of 4, found 513: use --backend cpu" ] || { cat out; fail "no message"; }
    for backend in cpu cuda; do
        rm -rf "run_$backend"
        train_wide "$backend" 511 || { cat out; fail "511 channels"; }
        grep -o 'step 2/2  loss [0-9.]*' out >"loss_$backend" || { cat out; fail "no loss"; }
    done
    cmp loss_cpu loss_cuda || fail "the loss differs"
}

transfers() { DDL_TEST_BACKENDS=cuda simulated "$memory"; }

laws() { DDL_TEST_BACKENDS=cuda simulated "$laws"; }

long_contexts() { DDL_TEST_BACKENDS=cuda simulated "$long_context"; }

# message EXPECTED COMMAND...: the command fails with one line, EXPECTED (a regular expression).
message() {
    expected=$1
    shift
    ! env "$@" "$ddl" verify --ops --backend "$backend" >out 2>&1 || fail "no error"
    [ "$(wc -l <out)" -eq 1 ] || { cat out; fail "more than a line"; }
    grep -qE -e "$expected" out || { cat out; fail "expected: $expected"; }
}

lost_device() {
    ! CUDA_SIM_FAIL=7 simulated "$ddl" verify --ops --backend cuda >out 2>&1 || fail "no error"
    grep -q 'CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)' out || { cat out; fail "no message"; }
}

# A run that needs more memory than others leave on the device: the message has both sizes and the options with which it fits.
too_little_memory() {
    "$ddl" data synthetic reverse --sequences 200 --val-sequences 20 --overwrite --out tokens --quiet
    set -- --size small --model baseline --train-data tokens --val-every 0 --batch 8 --steps 1 --warmup 1 --backend cuda
    ! CUDA_SIM_MEMORY=9000000000 CUDA_SIM_BUSY=4000000000 simulated "$ddl" train "$@" --out run >out 2>&1 || fail "no error"
    grep -q 'needs 5[.]. GiB of memory, backend cuda has 4[.]7 GiB free; it fits with --recompute block or --dtype bf16 or --batch 4; ' out || { cat out; fail "message"; }
}

# Memory is allocated without a stream.
no_pool() {
    CUDA_SIM_NO_POOL=1 simulated "$ddl" verify --ops rmsnorm_ matmul. --backend cuda >out 2>&1 || { tail -n 3 out; fail "ops"; }
}

if is_sample; then
    check some_ops ops 0 0 rmsnorm_ delta_ adamw
else
    check ops ops 0 0
    check own_products ops 1 1 matmul. matmul_bf16.
fi
check listed listed
check model model
check one_token one_token
check transfers transfers
check laws laws
check no_pool no_pool
check long_contexts long_contexts
check cublaslt cublaslt
check channels channels
check too_little_memory too_little_memory
backend=cuda
in=LD_LIBRARY_PATH=$driver
# Without the simulated driver the machine may have a real one.
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    check no_driver message 'libcuda.so.1.*install the NVIDIA driver' A=
fi
check no_device message 'there is no NVIDIA GPU' "$in" CUDA_SIM_DEVICES=0
check old_driver message 'the driver is for CUDA 12.4: expected 13.0 or newer: update it, or use --backend cpu$' "$in" CUDA_SIM_VERSION=12040
check old_device message 'simulated GPU has compute capability 7.5: expected 8.0 or newer: use another device .ddl info --backends. or --backend cpu$' "$in" CUDA_SIM_CAPABILITY=75
check busy_device message 'cuda:0: another program has the device for itself: wait until it ends, or use another device: ddl info' "$in" CUDA_SIM_EXCLUSIVE=1
check small_device message 'out of device memory.*: use a device with more memory, or --backend cpu$' "$in" CUDA_SIM_MEMORY=10000
check lost_device lost_device
backend=cuda:2
check unknown_device message 'backend cuda:2: expected a device from cuda:0 to cuda:1' "$in" CUDA_SIM_DEVICES=2
finish
