#!/bin/sh
# Builds the documents and the API reference as HTML, by Doxygen: it has the headers already, is a package of Debian, and
# its search works without a server. sh docs/api/build.sh FOLDER, run in the source tree. Doxygen warnings are errors.
set -eu
mkdir -p "$1"
{ cat docs/api/Doxyfile; echo "OUTPUT_DIRECTORY = \"$1\""; } | doxygen - >"$1/doxygen.log" 2>&1 && [ ! -s "$1/doxygen.log" ] && exit 0
cat "$1/doxygen.log" >&2
exit 1
