#!/bin/sh
# test_package.sh BUILD SOURCE SCRATCH: tests the packages that cpack creates from BUILD, extracted into a scratch root.
# `./dev test-package` installs them.
set -eu
build=$1
source=$2
scratch=$3
here=$source/tests/install
. "$source/tests/support/checks.sh"
LC_ALL=C
export LC_ALL
abi=$(sed -n 's/^#define DDL_VERSION_\(MAJOR\|MINOR\) //p' "$source/include/ddl/version.h" | paste -sd.)

for tool in cpack dpkg-deb dpkg-shlibdeps file; do
    command -v $tool >/dev/null 2>&1 || { skip package "$tool is not installed"; finish; }
done

mpi="" # the package that exists only in trees with MPI
[ ! -e "$build/libddl_mpi.so" ] || mpi=ddl-mpi

pack() {
    rm -rf "$scratch/packages" "$scratch/root"
    (cd "$build" && cpack -G DEB -B "$scratch/packages") >"$scratch/cpack.log" 2>&1 || { cat "$scratch/cpack.log"; exit 1; }
    ls "$scratch"/packages/*.deb
}

deb() { echo "$scratch/packages/$1"_*.deb; }

# has PACKAGE FIELD PATTERN
has() {
    dpkg-deb -f "$(deb "$1")" "$2" | grep -qE "$3" || fail "$1: $2: expected $3, found '$(dpkg-deb -f "$(deb "$1")" "$2")'"
}

control() {
    for library in libc6 libdnnl "libg?omp" libjansson4 libyaml-0-2 libpcre2-8-0 libzstd1 "libunistring[0-9]" zlib1g libprotobuf-c1; do
        has ddl Depends "(^|, )$library"
        has "libddl$abi" Depends "(^|, )$library"
    done
    has ddl Depends "(^|, )libedit2"
    has libddl-dev Depends "^libddl$abi \(= .*libdnnl-dev"
    has ddl Section '^science$'
    has "libddl$abi" Section '^libs$'
    has libddl-dev Section '^libdevel$'
    for package in ddl "libddl$abi" libddl-dev $mpi; do
        has "$package" Architecture "^$(dpkg --print-architecture)$"
        has "$package" Maintainer '@'
        has "$package" Description 'Deep Delta Learning'
    done
    [ -z "$mpi" ] || {
        has ddl-mpi Depends "(^|, )ddl \(= .*\) \| libddl$abi \(= "
        has ddl-mpi Depends '(^|, )(libopenmpi|libmpich)'
        has ddl-mpi Section '^science$'
        ! dpkg-deb --ctrl-tarfile "$(deb ddl-mpi)" | tar -tf - | grep shlibs || fail "ddl-mpi has a library to link"
    }
    dpkg-deb --ctrl-tarfile "$(deb "libddl$abi")" | tar -xO ./shlibs | grep -q "^libddl $abi libddl$abi (>= "
}

lay_out() {
    for package in "$scratch"/packages/*.deb; do
        dpkg-deb -x "$package" "$scratch/root"
    done
    for package in ddl "libddl$abi" libddl-dev $mpi; do
        grep -q 'Permission is hereby granted' "$scratch/root/usr/share/doc/$package/copyright"
        gzip -dc "$scratch/root/usr/share/doc/$package/changelog.gz" | grep -q '^ddl ('
    done
    [ -f "$scratch/root/usr/share/man/man1/ddl-train.1.gz" ]
    [ -f "$scratch/root/usr/share/fish/vendor_completions.d/ddl.fish" ]
    [ -n "$(find "$scratch/root/usr/share/zsh" -name _ddl)" ]
    [ -z "$(find "$scratch/root" -type d -empty)" ]
}

# The program finds the plugin of ddl-mpi.
finds_mpi() {
    "$1" --version --verbose | grep '^MPI: .*MPI' || fail "$("$1" --version --verbose)"
}

# Suppressed tags: the publisher sets the maintainer's address (DDL_MAINTAINER); CPack itself calls ldconfig; the
# location of ddl.pc is checked by ./dev test-package.
lint() {
    lintian --allow-root --tag-display-limit 0 --suppress-tags \
        bogus-mail-host,bogus-mail-host-in-debian-changelog,maintscript-calls-ldconfig,pkg-config-unavailable-for-cross-compilation \
        "$scratch"/packages/*.deb >"$scratch/lint" 2>&1
    ! grep '^[EW]:' "$scratch/lint" || fail "lintian complains"
}

check pack pack
check control control
check lay_out lay_out
[ -z "$mpi" ] || check plugin finds_mpi "$scratch/root/usr/bin/ddl"
check program sh "$here/use_ddl.sh" "$scratch/root/usr/bin/ddl" "$scratch/day"
if command -v lintian >/dev/null 2>&1; then
    check lint lint
else
    skip lint "lintian is not installed"
fi
finish
