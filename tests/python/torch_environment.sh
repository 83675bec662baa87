#!/bin/sh
# torch_environment.sh PYTHON FOLDER: makes a virtual environment with PyTorch for the CPU and what else the tests of
# python/ import, from PyPI. An existing FOLDER that this script completed is kept. Exit status: 77 if PyPI cannot be
# reached or PYTHON is not suitable, with a message.
#
# The x86-64 wheel of torch on PyPI is linked to CUDA libraries of 2 GB, none of which a CPU uses. It is installed without
# them; libraries with the functions that torch refers to, which abort, take their places. Only the CUDA runtime and CUPTI
# are the real ones: torch calls them when it is loaded.
set -eu
python=$1
folder=$2
torch="torch==2.15.0 triton==3.9.0 nvidia-cuda-runtime==13.2.86 nvidia-cuda-cupti==13.2.86 accelerate==1.15.0"
torch_needs="filelock typing_extensions sympy networkx jinja2 fsspec psutil"
others="numpy==2.4.6 transformers==5.24.0 lm_eval==0.4.13 pandas==3.1.1 matplotlib==3.11.2 nbclient==0.11.0
    ipykernel==7.4.0 tensorboard==2.21.0 mypy==2.4.1"

skip() {
    echo "skipped: $*"
    exit 77
}

# Without bytecode, which Python writes where a module is imported: pip would compile every module.
install() { "$folder/bin/pip" install -q --no-compile --timeout 20 "$@" >"$folder/log" 2>&1; }

# By uv, in a quarter of the time, or pip.
install_or_fail() {
    "$folder/bin/uv" pip install -q --no-cache --python "$folder/bin/python" "$@" >"$folder/log" 2>&1 ||
        install --retries 3 --no-cache-dir "$@" || { cat "$folder/log"; exit 1; }
}

# Undefined symbols of torch's libraries that a CUDA library defines.
missing_symbols() {
    nm -D --undefined-only "$libraries"/*.so |
        sed -n 's/^ *[Uw] \(\(cu\|nccl\|nvrtc\|nvshmem\)[A-Za-z0-9_]*\)\(@.*\)\{0,1\}$/\1/p' | grep -v '^cuda\|^cupti' | sort -u
}

missing_libraries() {
    for library in "$libraries"/*.so; do
        readelf -dW "$library"
    done | sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nccl\|nv\).*\)\]/\1/p' | grep -v '^lib\(cudart\|cupti\|cuda\)\.' | sort -u
}

replace_cuda() {
    libraries=$(echo "$folder"/lib/python3*/site-packages/torch/lib)
    { echo '#include <stdlib.h>'; missing_symbols | sed 's/.*/void &(void) { abort(); }/'; } >"$folder/cuda.c"
    cc -shared -fPIC -o "$folder/cuda.so" "$folder/cuda.c"
    for name in $(missing_libraries); do
        cp "$folder/cuda.so" "$libraries/$name"
    done
}

for tool in cc nm readelf; do
    command -v $tool >/dev/null 2>&1 || skip "$tool is not installed"
done
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null ||
    skip "expected Python 3.11 to 3.14: $python"
stamp=$(cksum <"$0")
[ "$(cat "$folder/complete" 2>/dev/null)" != "$stamp" ] || exit 0
rm -rf "$folder"
"$python" -m venv "$folder" >/dev/null 2>&1 || skip "$python cannot make a virtual environment (package python3-venv)"
install --retries 0 pytest==9.2.0 uv==0.13.9 || skip "PyPI cannot be reached"
# shellcheck disable=SC2086
install_or_fail --no-deps $torch
# shellcheck disable=SC2086
install_or_fail $torch_needs $others
replace_cuda
"$folder/bin/python" -c 'import torch'
echo "$stamp" >"$folder/complete"
