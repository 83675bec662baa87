#!/bin/sh
# test_install.sh BUILD SOURCE SCRATCH: tests the result of `cmake --install` with programs outside of this tree. The
# installed folder is moved first, because it must be relocatable.
set -eu
build=$1
source=$2
scratch=$3
here=$source/tests/install
. "$source/tests/support/checks.sh"
LC_ALL=C
export LC_ALL
prefix="$scratch/moved here" # with a space, to test quoting

version() { sed -n "s/^#define DDL_VERSION_$1 //p" "$source/include/ddl/version.h"; }
abi=$(version MAJOR).$(version MINOR)
full=$abi.$(version PATCH)

install_and_move() {
    rm -rf "$scratch/first" "$prefix" "$scratch/dest"
    cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
    DESTDIR="$scratch/dest" cmake --install "$build" --prefix /opt/ddl >>"$scratch/install.log"
    # No file may contain a path of this machine, except for debug information. Match only at the start of a path: the
    # source may be in /ddl, and .../share/doc/ddl/README.md is not a match.
    begins='(^|[^[:alnum:]_.}-])'
    quoted=$(printf '%s' "$source" | sed 's/[][\.*^$+?(){}|]/\\&/g')
    ! grep -rIlE -e "$begins$quoted(/|[^[:alnum:]_.-]|\$)" "$scratch/first" "$scratch/dest" || fail "these files contain a path"
    ! grep -rIlF -e "$scratch" "$scratch/first" "$scratch/dest" || fail "these files contain the scratch path"
    (cd "$scratch/dest/opt/ddl" && find . | sort) >"$scratch/staged"
    (cd "$scratch/first" && find . | sort) | cmp - "$scratch/staged"
    mv "$scratch/first" "$prefix"
}

libraries() {
    [ "$(readlink "$lib/libddl.so")" = "libddl.so.$abi" ]
    [ "$(readlink "$lib/libddl.so.$abi")" = "libddl.so.$full" ]
    readelf -d "$lib/libddl.so.$full" | grep -q "SONAME.*\[libddl.so.$abi\]"
    [ "$("$prefix/bin/ddl" --version)" = "ddl $full" ]
}

# The documents that help and README name.
documents() {
    "$prefix/bin/ddl" help >"$scratch/help"
    for command in $(sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' "$scratch/help"); do
        "$prefix/bin/ddl" help "$command"
    done >>"$scratch/help"
    named=$(grep -oh 'docs/[a-z-]*\.[a-z]*' "$scratch/help" "$prefix/share/doc/ddl/README.md" | sort -u)
    [ "$(echo "$named" | wc -l)" -gt 9 ] || fail "few documents are named: $named"
    for document in $named; do
        [ -s "$prefix/share/doc/ddl/$document" ] || fail "$document is not installed"
    done
}

# The program finds the MPI plugin in its prefix.
plugin() {
    "$prefix/bin/ddl" --version --verbose | grep '^MPI: .*MPI' || fail "$("$prefix/bin/ddl" --version --verbose)"
    [ "$(nm -D --defined-only "$lib/ddl/libddl_mpi.so" | awk '{ print $3 }')" = ddl_comm_plugin ]
}

# Both libraries export exactly the functions that the headers declare.
symbols() {
    for header in "$prefix"/include/ddl/*.h; do
        echo "#include <ddl/$(basename "$header")>"
    done >"$scratch/all.c"
    cc -std=c11 -E -P -I "$prefix/include" "$scratch/all.c" | tr -s '\n ' ' ' | tr ';' '\n' |
        sed -n 's/.*visibility("default"))) *//p' | sort >"$scratch/api"
    sed -n 's/^[^(]*[ *]\(ddl_[a-z0-9_]*\) *[([].*/\1/p' "$scratch/api" | sort >"$scratch/declared"
    [ "$(wc -l <"$scratch/declared")" -gt 100 ] || fail "only $(wc -l <"$scratch/declared") declarations were found"
    nm -D --defined-only "$lib/libddl.so" | awk '{ print $3 }' | sort >"$scratch/shared"
    nm -g --defined-only "$lib/libddl.a" | awk 'NF == 3 { print $3 }' | sort >"$scratch/static"
    diff "$scratch/declared" "$scratch/shared" || fail "exports of the shared library differ from the headers"
    diff "$scratch/declared" "$scratch/static" || fail "exports of the static library differ from the headers"
}

# A change of the C API is made on purpose: CONTRIBUTING.md, "Versions".
api() {
    diff -u "$here/api.txt" "$scratch/api" || fail "the C API changed: copy $scratch/api to tests/install/api.txt"
}

headers() {
    for header in "$prefix"/include/ddl/*.h; do
        echo "#include <ddl/$(basename "$header")>" >"$scratch/one.c"
        cc -std=c11 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror \
            -I "$prefix/include" "$scratch/one.c"
        c++ -x c++ -std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Werror \
            -I "$prefix/include" "$scratch/one.c"
    done
}

# by_pkg_config COMPILER STANDARD... : once with the shared library, once with the static one.
by_pkg_config() {
    PKG_CONFIG_PATH=$lib/pkgconfig
    export PKG_CONFIG_PATH
    [ "$(pkg-config --modversion ddl)" = "$full" ]
    eval "$* -Wall -Wextra -Wpedantic -Werror '$here/outside/outside.c' -x none $(pkg-config --cflags --libs ddl) -lm \
        -o '$scratch/shared.out'"
    LD_LIBRARY_PATH=$lib "$scratch/shared.out" | grep "ddl $full, headers $full: loss"
    LD_LIBRARY_PATH=$lib ldd "$scratch/shared.out" | grep -q "libddl.so.$abi"
    eval "$* '$here/outside/outside.c' -x none $(pkg-config --static --cflags --libs ddl | sed 's/-lddl/-l:libddl.a/') \
        -o '$scratch/static.out'"
    "$scratch/static.out" | grep "ddl $full, headers $full: loss"
    ! ldd "$scratch/static.out" | grep libddl || fail "the static program depends on libddl.so"
}

by_find_package() {
    language=$1
    rm -rf "$scratch/cmake-$language"
    cmake -G Ninja -S "$here/outside" -B "$scratch/cmake-$language" -DLANGUAGE="$language" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$scratch/cmake.log"
    cmake --build "$scratch/cmake-$language" >"$scratch/cmake.log" || { cat "$scratch/cmake.log"; exit 1; }
    for kind in ddl ddl_static; do
        "$scratch/cmake-$language/with_$kind" | grep "ddl $full, headers $full: loss"
    done
    ldd "$scratch/cmake-$language/with_ddl" | grep -q "libddl.so.$abi"
    ! ldd "$scratch/cmake-$language/with_ddl_static" | grep libddl || fail "the static program depends on libddl.so"
}

# The examples against the installed library, a few steps of each.
examples() {
    rm -rf "$scratch/examples"
    cmake -G Ninja -S "$source/examples" -B "$scratch/examples" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/cmake.log" 2>&1
    cmake --build "$scratch/examples" >"$scratch/cmake.log" || { cat "$scratch/cmake.log"; exit 1; }
    "$scratch/examples/digits_mlp" "$source/data/digits/digits.bin" 40 1 | grep -c 'test accuracy'
    "$scratch/examples/digits_conv" "$source/data/digits/digits.bin" 10 1 | grep -c 'test accuracy'
    "$scratch/examples/text_recurrent" "$source/data/text/tinyshakespeare.txt" 20 1 | grep -c 'validation loss'
}

# Runs the commands of docs/usage.md, "Installing", and of docs/c-api.md with its C program; this build is in place of
# that of ./dev build.
manual() {
    home=$scratch/home
    rm -rf "$home" "$scratch/manual"
    mkdir -p "$home" "$scratch/manual/build"
    ln -s "$build" "$scratch/manual/build/release"
    awk '/^## / { section = $0 }
        /^```/ { block = block == "" ? substr($0, 4) : ""; next }
        FILENAME ~ /c-api/ && block == "c" { print > (out "/rewrite.c") }
        (FILENAME ~ /c-api/ || section == "## Installing") && block == "sh" && !/^\.\/dev / { print > (out "/commands") }
        ' out="$scratch/manual" "$source/docs/usage.md" "$source/docs/c-api.md"
    cd "$scratch/manual"
    [ "$(grep -c . commands)" -ge 5 ] || fail "docs/usage.md and docs/c-api.md have too few commands"
    HOME=$home sh -eu commands >output
    grep -x '5 4' output
    [ "$(./rewrite-static)" = "5 4" ]
    "$home/.local/bin/ddl" --version
}

# find_package must reject incompatible versions.
other_versions() {
    for wanted in $(version MAJOR).$(($(version MINOR) + 1)) $(($(version MAJOR) + 1)).0; do
        sed "s/find_package(ddl 0.1 /find_package(ddl $wanted /" "$here/outside/CMakeLists.txt" >"$scratch/CMakeLists.txt"
        rm -rf "$scratch/other"
        ! cmake -G Ninja -S "$scratch" -B "$scratch/other" -DLANGUAGE=C -DCMAKE_PREFIX_PATH="$prefix" \
            >"$scratch/cmake.log" 2>&1 || fail "version $wanted was found"
        grep -q 'considered but not accepted' "$scratch/cmake.log"
    done
}

commands() { "$prefix/bin/ddl" help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'; }

pages_exist() {
    [ "$(commands | wc -l)" -ge 10 ]
    for page in ddl $(commands | sed 's/^/ddl-/'); do
        file=$prefix/share/man/man1/$page.1
        for section in NAME SYNOPSIS DESCRIPTION OPTIONS "EXIT STATUS" EXAMPLES "SEE ALSO"; do
            grep -q "^\.SH $section$" "$file" || fail "$page.1 has no section $section"
        done
    done
    grep -q '^\.SH KEYS OF THE RUN$' "$prefix/share/man/man5/ddl-recipe.5"
    # The page has every key of ddl train.
    "$prefix/bin/ddl" help train | sed -n '/^keys of/,$s/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/\2/p' | tr - _ |
        while read -r key; do
            grep -q "^\\\\fB$key\\\\fR$" "$prefix/share/man/man5/ddl-recipe.5" || fail "ddl-recipe.5 lacks $key"
        done
}

# The options of each page are those of --help.
pages_are_right() {
    for page in "$prefix"/share/man/man1/ddl-*.1; do
        name=$(basename "$page" .1)
        groff -man -Tascii -P-cbou "$page" >"$scratch/page"
        "$prefix/bin/ddl" help "${name#ddl-}" | sed -n 's/^  \(--[^ ]*\).*/\1/p' >"$scratch/flags"
        while read -r flag; do
            grep -qF -e "       $flag" "$scratch/page" || fail "$name.1 lacks $flag"
        done <"$scratch/flags"
    done
}

pages_are_clean() {
    for page in "$prefix"/share/man/man*/*; do
        complaints=$("$@" "$page" 2>&1)
        [ -z "$complaints" ] || fail "$complaints"
    done
}

# offered WORD...: prints the completions by bash for the last word.
offered() {
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ddl; echo "${COMPREPLY[*]}"' bash \
        "$prefix/share/bash-completion/completions/ddl" "$@"
}

completes() {
    wanted=$1
    shift
    found=$(offered "$@")
    [ "$found" = "$wanted" ] || fail "'$*': expected '$wanted', found '$found'"
}

completion() {
    completes train ddl tra
    completes build ddl data bu
    completes "--checkpoint-every --checkpoint-seconds" ddl train --checkpoint
    completes --no-overwrite ddl data build --no-over
    completes "ddl-cc ddl-cc-ec" ddl train --model ddl-cc
    completes "ddl-cc ddl-cc-ec" ddl train --model = ddl-cc
    completes "k v" ddl train --ddl-map ""
    completes "" ddl train --steps ""
    completes verify ddl help ver
    completes ddl-train.1 ddl help --man ddl-tr
    touch "$scratch/a shard.bin"
    completes "$scratch/a shard.bin" ddl eval run --shard "$scratch/a sh"
    for command in $(commands); do
        completes "$command" ddl "$command"
    done
}

check install_and_move install_and_move
lib=$(dirname "$(find "$prefix" -name libddl.a)")
check libraries libraries
check documents documents
[ ! -e "$build/libddl_mpi.so" ] || check plugin plugin
check symbols symbols
check api api
check headers headers
check pkg_config_c by_pkg_config cc -x c -std=c11
check pkg_config_cxx by_pkg_config c++ -x c++ -std=c++17
check find_package_c by_find_package C
check find_package_cxx by_find_package CXX
check examples examples
check manual manual
check other_versions other_versions
check program sh "$here/use_ddl.sh" "$prefix/bin/ddl" "$scratch/day"
check pages_exist pages_exist
if command -v groff >/dev/null 2>&1; then
    check pages_are_right pages_are_right
    check pages_by_groff pages_are_clean groff -man -ww -z -Tutf8
else
    skip pages_by_groff "groff is not installed"
fi
if command -v mandoc >/dev/null 2>&1; then
    check pages_by_mandoc pages_are_clean mandoc -Tlint
else
    skip pages_by_mandoc "mandoc is not installed"
fi
check completion completion
finish
