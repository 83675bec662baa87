#!/bin/sh
# Configuring without cmocka turns the tests off with a message, without libedit the editing of lines, without Chart.js
# the HTML pages, without protobuf-c the event files for TensorBoard, and without MPI the plugin. pkg-config sees a folder with all modules but these.
# usage: test_configure.sh SOURCE SCRATCH
set -eu
source=$1 scratch=$2
rm -rf "$scratch/modules" "$scratch/build"
mkdir -p "$scratch/modules"
for folder in $(pkg-config --variable pc_path pkg-config | tr : ' '); do
    for module in "$folder"/*.pc; do
        case $module in
        *cmocka* | *libedit* | *protobuf-c*) ;;
        *) [ ! -e "$module" ] || ln -sf "$module" "$scratch/modules/" ;;
        esac
    done
done
PKG_CONFIG_LIBDIR=$scratch/modules PKG_CONFIG_PATH='' cmake -S "$source" -B "$scratch/build" -DDDL_TESTS=ON -DDDL_CHART_JS= \
    -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON \
    >"$scratch/log.txt" 2>&1 || { cat "$scratch/log.txt"; exit 1; }
for message in 'cmocka is missing: the tests are not built' 'libedit is missing: ddl generate reads lines without editing' \
    'Chart.js is missing: ddl writes no HTML pages' \
    'protobuf-c is missing: ddl train writes no event files for TensorBoard' \
    'MPI is missing: ddl runs as one process'; do
    grep -q "$message" "$scratch/log.txt" || { cat "$scratch/log.txt"; exit 1; }
done
if [ -e "$scratch/build/CTestTestfile.cmake" ] && grep -q tests "$scratch/build/CTestTestfile.cmake"; then
    echo "tests were configured without cmocka"
    exit 1
fi
