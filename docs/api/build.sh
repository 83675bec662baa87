#!/bin/sh
# The API reference as HTML: sh docs/api/build.sh FOLDER, from the source tree. Whatever Doxygen warns of is an error.
set -eu
mkdir -p "$1"
{ cat docs/api/Doxyfile; echo "OUTPUT_DIRECTORY = \"$1\""; } | doxygen - >"$1/doxygen.log" 2>&1 && [ ! -s "$1/doxygen.log" ] && exit 0
cat "$1/doxygen.log" >&2
exit 1
