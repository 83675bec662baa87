#!/bin/sh
# Tests the Python package (package.sh) with Python 3.9, the oldest that it supports: that of Debian 11, 9 MB, unpacked
# into a folder. It uses the C library of this machine. Needs apt; where Debian or PyPI cannot be reached it is skipped.
set -eu
skip() {
    echo "skipped: $*"
    exit 77
}

apt=$DDL_SCRATCH/apt
root=$DDL_SCRATCH/root
[ "$(uname -m)" = x86_64 ] || skip "needs x86-64"
command -v apt-get >/dev/null 2>&1 || skip "apt-get is not installed"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f $keys ] || skip "$keys is missing (package debian-archive-keyring)"
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep /debian$ | head -n 1)
rm -rf "$apt" "$root"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/packages" "$root"
echo "deb [arch=amd64 signed-by=$keys] ${mirror:-http://deb.debian.org/debian} bullseye main" >"$apt/sources.list"
cat >"$apt/apt.conf" <<END
Dir::State "$apt/state";
Dir::State::status "/dev/null";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "1";
END
(
    cd "$apt/packages"
    export APT_CONFIG="$apt/apt.conf"
    apt-get update -qq
    apt-get download -qq python3.9 python3.9-minimal python3.9-venv libpython3.9-minimal libpython3.9-stdlib \
        python3-distutils python3-lib2to3 python-pip-whl libffi7 libmpdec3 libssl1.1
) >"$DDL_SCRATCH/log" 2>&1 || skip "Debian 11 cannot be downloaded"
for package in "$apt"/packages/*.deb; do
    dpkg -x "$package" "$root"
done
sed -i "s|/usr/share/python-wheels|$root&|" "$root/usr/lib/python3.9/ensurepip/__init__.py"
export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu"
export DDL_PYTHON="$root/usr/bin/python3.9"
export DDL_TEST_SAMPLE=1 # without what does not depend on the Python
"$DDL_PYTHON" --version
"$DDL_PYTHON" "$DDL_SOURCE_DIR/python/parquet_to_jsonl.py" --help >/dev/null
exec sh "$DDL_SOURCE_DIR/tests/python/package.sh"
