#!/bin/sh
# bundle.sh BUILD SOURCE OUT: writes OUT/ddl-VERSION-linux-ARCH.tar.zst: the program and its plugins with every shared
# library but glibc's, their licenses, manual pages, tokenizer and recipes. Prints the archive's path. Needs dpkg (for
# licenses), readelf and zstd.
set -eu
build=$1
source=$2
out=$3
LC_ALL=C
export LC_ALL
unset DESTDIR

fail() {
    echo "bundle: $*" >&2
    exit 1
}

for tool in dpkg-query readelf strip zstd; do
    command -v $tool >/dev/null 2>&1 || fail "$tool is not installed"
done

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

[ "$(cached CMAKE_INSTALL_LIBDIR)" = lib ] || fail "CMAKE_INSTALL_LIBDIR: expected lib, found '$(cached CMAKE_INSTALL_LIBDIR)'"
version=$(sed -n 's/^#define DDL_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$source/include/ddl/version.h" | paste -sd.)
machine=$(uname -m)
name=ddl-$version-linux-$machine
top=$out/$name
libraries=$top/lib/ddl
docs=$top/share/doc/ddl
mkdir -p "$out"
cmake --build "$build" --target ddl_portable >"$out/bundle.log" || { cat "$out/bundle.log" >&2; exit 1; }
rm -rf "$top"
for component in program mpi cuda; do
    cmake --install "$build" --prefix "$top" --component $component --strip >>"$out/bundle.log"
done
strip -o "$top/bin/ddl" "$build/ddl_portable"
chmod 755 "$top/bin/ddl"
mkdir -p "$libraries" "$docs/licenses"

# Plugins use the host's libraries: MPI has to be that of its launcher, CUDA that of the driver.
sh "$source/cmake/licenses.sh" "$build/ddl_portable" "$docs" libc6 >"$out/needed.txt"
while read -r library path; do
    cp -L "$path" "$libraries/$library"
    chmod 644 "$libraries/$library"
done <"$out/needed.txt"

glibc=$(find "$top/bin" "$top/lib" -type f -exec readelf -VW {} + | grep -o 'GLIBC_[0-9.]*[0-9]' | sort -Vu | tail -n 1)
glibc=${glibc#GLIBC_}
mpi=""
[ ! -e "$libraries/libddl_mpi.so" ] ||
    mpi=$(readelf -dW "$libraries/libddl_mpi.so" | sed -n 's/.*(NEEDED).*\[\(libmpi.*\)\]/\1/p')
cat >"$top/README" <<END
ddl $version for Linux on $machine, with glibc $glibc or newer (ldd --version).

The folder can be moved anywhere. bin/ddl needs nothing outside of it but glibc; put bin/ in PATH.
Manual pages: man -M share/man ddl. In share/doc/ddl: README.md, docs, copyright, licenses of the libraries,
and LIBRARIES, the origin of each.
${mpi:+
To train with several ranks, install an MPI library that has the file $mpi. The command
ddl --version --verbose shows whether it was found.}
END

archive=$out/$name.tar.zst
rm -f "$out"/ddl-*.tar.zst
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(date +%s)}" -cf - "$name" |
    zstd -q -f -T0 "-${DDL_BUNDLE_LEVEL:-19}" -o "$archive"
rm -rf "$top"
echo "$archive"
