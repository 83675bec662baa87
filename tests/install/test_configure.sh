#!/bin/sh
# Configuring without cmocka turns the tests off with a message. pkg-config sees a folder with all modules but that one.
# usage: test_configure.sh SOURCE SCRATCH
set -eu
source=$1 scratch=$2
rm -rf "$scratch/modules" "$scratch/build"
mkdir -p "$scratch/modules"
for folder in $(pkg-config --variable pc_path pkg-config | tr : ' '); do
    for module in "$folder"/*.pc; do
        case $module in
        *cmocka*) ;;
        *) [ ! -e "$module" ] || ln -sf "$module" "$scratch/modules/" ;;
        esac
    done
done
PKG_CONFIG_LIBDIR=$scratch/modules PKG_CONFIG_PATH='' cmake -S "$source" -B "$scratch/build" -DDDL_TESTS=ON \
    >"$scratch/log.txt" 2>&1 || { cat "$scratch/log.txt"; exit 1; }
grep -q 'cmocka is missing: the tests are not built' "$scratch/log.txt" || { cat "$scratch/log.txt"; exit 1; }
if [ -e "$scratch/build/CTestTestfile.cmake" ] && grep -q tests "$scratch/build/CTestTestfile.cmake"; then
    echo "tests were configured without cmocka"
    exit 1
fi
