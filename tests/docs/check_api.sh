#!/bin/sh
# Checks that the site builds without a warning: every function, parameter and member is documented, and every link to a
# document or a heading has a target.
#   sh check_api.sh SOURCE SCRATCH
set -eu
cd "$1"
if ! command -v doxygen >/dev/null 2>&1; then
    echo "skipped: doxygen is not installed"
    exit 77
fi
if sh docs/api/build.sh "$2"; then
    echo "[       OK ] every_declaration_is_documented"
else
    echo " 1 FAILED TEST(S)"
    exit 1
fi
