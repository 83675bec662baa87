#!/bin/sh
# Checks that no function has more than eight parameters: more become a struct. Expects sources formatted by clang-format,
# in which a definition starts in the first column and ends with a line "{".
# check_parameters.sh SOURCE
set -eu
cd "$1"
find src cli examples tests -name '*.[ch]' | sort | xargs awk -v most=8 '
    FNR == 1 { text = "" }
    /^[A-Za-z_].*\(/ { text = $0; line = FNR; if ($0 !~ /;$/ && $0 !~ /\\$/) next; text = ""; next }
    text != "" && /^\{/ {
        list = text
        sub(/^[^(]*\(/, "", list)
        depth = 0; n = 1
        for (i = 1; i <= length(list); i++) {
            c = substr(list, i, 1)
            if (c == "(") depth++
            if (c == ")") depth--
            if (c == "," && depth == 0) n++
        }
        name = text
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (n > most) {
            printf "%s:%d: %s has %d parameters, at most %d\n", FILENAME, line, name, n, most
            bad = 1
        }
        text = ""
        next
    }
    text != "" && /[;{}]/ { text = ""; next }
    text != "" { text = text $0 }
    END { exit bad }'
