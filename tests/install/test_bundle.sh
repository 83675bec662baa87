#!/bin/sh
# test_bundle.sh BUILD SOURCE SCRATCH: tests the archive of ./dev bundle: its size, that it has every library but glibc's
# and a license for each, and a session in a root that has nothing but glibc and the unpacked archive. `./dev test-bundle`
# does the latter in a root of another distribution.
set -eu
build=$1
source=$2
scratch=$3
. "$source/tests/support/checks.sh"
LC_ALL=C
export LC_ALL
glibc='^(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util))\.so\.'

for tool in dpkg-query readelf strip zstd; do
    command -v $tool >/dev/null 2>&1 || { skip bundle "$tool is not installed"; finish; }
done

pack() {
    rm -rf "$scratch/out" "$scratch/root"
    DDL_BUNDLE_LEVEL=3 sh "$source/cmake/bundle.sh" "$build" "$source" "$scratch/out" >"$scratch/archive"
    [ "$(stat -c %s "$(cat "$scratch/archive")")" -lt $((64 << 20)) ] || fail "the archive has 64 MiB or more"
    mkdir "$scratch/root"
    tar --zstd -C "$scratch/root" -xf "$(cat "$scratch/archive")"
    mv "$scratch"/root/ddl-*-linux-* "$scratch/root/moved here" # with a space, to test quoting
}

# Every library that the program or a library needs is glibc's or in the bundle.
closed() {
    find "$top/bin" "$top/lib" -type f ! -name 'libddl_*' | while read -r file; do
        readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "$glibc" | while read -r needed; do
            [ -f "$top/lib/ddl/$needed" ] || fail "$file needs $needed"
        done
    done
    ldd "$top/bin/ddl" >"$scratch/ldd"
    ! awk -v top="$top/" '/=>/ && index($0, "=> " top) == 0 { print $1 }' "$scratch/ldd" | grep -vE "$glibc" ||
        fail "libraries of this system are used"
}

licenses() {
    for library in "$top"/lib/ddl/*; do
        name=$(basename "$library")
        case $name in libddl_*) continue ;; esac
        package=$(sed -n "s/^$name: package \([^ ]*\) .*/\1/p" "$top/share/doc/ddl/LIBRARIES")
        [ -s "$top/share/doc/ddl/licenses/$package" ] || fail "$name: no license"
    done
    for text in 'Permission is hereby granted' 'Chart.js Contributors' 'data/tokenizer'; do
        grep -q "$text" "$top/share/doc/ddl/copyright" || fail "copyright: no '$text'"
    done
    [ -s "$top/share/doc/ddl/licenses/common/GPL-3" ]
    [ -f "$top/share/man/man1/ddl-train.1" ]
}

no_paths() {
    quoted=$(printf '%s' "$source" | sed 's/[][\.*^$+?(){}|]/\\&/g')
    ! grep -ralE -e "(^|[^[:alnum:]_.}-])$quoted(/|[^[:alnum:]_.-]|\$)" "$top" || fail "these files contain a path"
}

# bare FOLDER COMMAND...: runs COMMAND in the root, in FOLDER, with its own /proc.
bare() {
    folder=$1
    shift
    unshare --user --map-root-user --mount --pid --fork --mount-proc --root="$scratch/root" --wd="$folder" "$@"
}

# Copies what ldd found outside of the bundle, which `closed` has shown to be glibc, and its loader.
lay_out() {
    mkdir -p "$scratch/root/proc" "$scratch/root/day"
    grep -o '/[^ ]*' "$scratch/ldd" | grep -E "/$(echo "$glibc" | sed 's/^^//')" | while read -r library; do
        mkdir -p "$scratch/root$(dirname "$library")"
        cp -L "$library" "$scratch/root$library"
    done
}

# use_ddl.sh runs here, its program there; both see the folder of the session.
session() {
    cat >"$scratch/program" <<END
#!/bin/sh
exec unshare --user --map-root-user --mount --pid --fork --mount-proc --root='$scratch/root' --wd="\${PWD#'$scratch/root'}" \\
    '/moved here/bin/ddl' "\$@"
END
    chmod 755 "$scratch/program"
    sh "$source/tests/install/use_ddl.sh" "$scratch/program" "$scratch/root/day/session"
}

check pack pack
top="$scratch/root/moved here"
check closed closed
check licenses licenses
check no_paths no_paths
lay_out
if bare / '/moved here/bin/ddl' --version >/dev/null 2>"$scratch/unshare.log" ||
    ! grep -q '^unshare: ' "$scratch/unshare.log"; then
    check session session
else
    skip session "$(cat "$scratch/unshare.log")"
fi
finish
