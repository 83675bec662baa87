#!/bin/sh
# Builds the Python package (cmake/wheel.sh), installs the wheel in a new virtual environment, and runs the first lines of
# docs/python.md in it, with fewer steps: from a text to a plot of gates. Needs python3 with venv, git, dpkg, and PyPI; else skipped.
set -eu
. "$DDL_SOURCE_DIR/tests/support/checks.sh"
wheel=$DDL_SCRATCH/wheel
environment=$DDL_SCRATCH/environment
unset PYTHONPATH DEEP_DELTA_PREFIX PYTHONDONTWRITEBYTECODE # pip is started ten times
export GOMP_SPINCOUNT=3000 # other tests run at the same time

skip_all() {
    echo "skipped: $*"
    exit 77
}

# Slow code, and not all kernels: this tests the package, and compiling takes most of its time.
build() { SKBUILD_CMAKE_BUILD_TYPE=Debug CMAKE_ARGS="-DDDL_KERNEL_LEVEL=-O1 -DDDL_AVX512=OFF" sh "$DDL_SOURCE_DIR/cmake/wheel.sh" "$DDL_SOURCE_DIR" "$wheel" 2>&1; }

install() {
    "$environment/bin/pip" install -q --no-compile --retries 3 --timeout 20 "$(echo "$wheel"/*.whl)[runs,progress]" 2>&1
    "$environment/bin/ddl" --version
}

plot() {
    rm -rf "$DDL_SCRATCH/day"
    mkdir "$DDL_SCRATCH/day"
    cd "$DDL_SCRATCH/day"
    head -c 300000 "$DDL_SOURCE_DIR/data/text/tinyshakespeare.txt" >input.txt
    python3 - "$DDL_SOURCE_DIR/docs/python.md" >five_lines.py <<'END'
import re, sys
print(re.search(r"^```python\n(.*?)^```$", open(sys.argv[1], encoding="utf-8").read(), re.M | re.S)[1])
END
    [ "$(sed '/savefig/q' five_lines.py | grep -c .)" -eq 5 ] || fail "docs/python.md: expected a plot after five lines"
    sed 's/steps=200/steps=4, batch=2, seq=64, val_tokens=512/' five_lines.py >quick.py
    "$environment/bin/python" quick.py >text 2>errors || { cat errors; exit 1; }
    head -c 8 first.png | cmp -s - "$DDL_SCRATCH/signature" || fail "first.png is not a PNG file"
    [ "$(stat -c %s first.png)" -gt 20000 ] || fail "first.png is almost empty"
    [ -s text ] || fail "no text was generated"
}

for tool in git dpkg-query; do
    command -v $tool >/dev/null 2>&1 || skip_all "$tool is not installed"
done
git -C "$DDL_SOURCE_DIR" rev-parse HEAD >/dev/null 2>&1 || skip_all "$DDL_SOURCE_DIR is not a git clone"
python3 -m venv --clear "$environment" >"$DDL_SCRATCH/log" 2>&1 ||
    skip_all "python3 cannot make a virtual environment (package python3-venv)"
"$environment/bin/pip" install --retries 0 --timeout 10 -q numpy >"$DDL_SCRATCH/log" 2>&1 || skip_all "PyPI cannot be reached"
printf '\211PNG\r\n\032\n' >"$DDL_SCRATCH/signature"
check build build
check install install
check plot plot
finish
