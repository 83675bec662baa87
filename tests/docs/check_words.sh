#!/bin/sh
# check_words.sh: checks the wording of comments, strings and documents in the source tree:
#
#   - spelling, with codespell (skipped with a message if it is not installed); American spelling
#   - banned terms: tests/docs/banned_terms.txt, one "term<TAB>use instead" per line, with a third field "identifiers" if the
#     term is banned in identifiers only. Terms are matched case-insensitively as whole words in identifiers (divided at
#     underscores), comments and string literals of C files, in other source files, and in the prose of documents
#     (not in fenced blocks, `code` and comments). Outside of C identifiers, underscores and hyphens are part of a word, as is the extension of a file
#     name; "stands for" is allowed.
#   - lines of documents are at most 100 columns wide, except for tables, code and links
#
# tests/docs/word_exemptions.txt has exact lines that may contain any term, as "path<TAB>line" without leading and
# trailing white space. An entry that matches nothing is an error.
set -eu
cd "$(dirname "$0")/../.."
here=tests/docs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C
export LC_ALL

# Files without generated, binary and third-party content.
{
    find include src cli tests examples cmake docs bench python recipes demo data .ci .github -type f \( -name '*.[ch]' -o -name '*.cpp' -o \
        -name '*.cu' -o -name '*.cuh' -o -name '*.md' -o -name '*.sh' -o -name '*.py' -o -name '*.awk' -o -name '*.cmake' -o -name CMakeLists.txt -o -name '*.yaml' -o \
        -name '*.dict' \) ! -path 'tests/golden/*.md' ! -path 'tests/fuzz/corpus/*' ! -path 'tests/fuzz/regressions/*'
    for file in dev README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md CITATION.cff CMakeLists.txt CMakePresets.json; do
        [ ! -f "$file" ] || echo "$file"
    done
    find .ci -type f ! -name '*.*'
} | grep -v "^$here/check_words.sh\$" | sort -u >"$work/files"

# ---- banned terms and wide lines ----
# shellcheck disable=SC2046
awk -v terms="$here/banned_terms.txt" -v exemptions="$here/word_exemptions.txt" '
    function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }
    # The comments and string literals of a line of C; sets identifiers to the rest, without underscores. in_comment is
    # kept from line to line.
    function words_of_c(s,    out, at, c) {
        out = identifiers = ""
        while (s != "") {
            if (in_comment) {
                at = index(s, "*/")
                if (!at) return out " " s
                out = out " " substr(s, 1, at - 1)
                s = substr(s, at + 2)
                in_comment = 0
            } else if (match(s, /"|\/\*|\/\/|\047/)) {
                c = substr(s, RSTART, 1)
                identifiers = identifiers " " substr(s, 1, RSTART - 1)
                if (c == "/" && substr(s, RSTART, 2) == "//") return out " " substr(s, RSTART + 2)
                s = substr(s, RSTART + (c == "/" ? 2 : 1))
                if (c == "/") { in_comment = 1; continue }
                if (c == "\"") { match(s, /^([^"\\]|\\.)*"/); out = out " \"" substr(s, 1, RLENGTH) }
                else match(s, /^([^\047\\]|\\.)*\047/)
                if (RLENGTH < 0) return out
                s = substr(s, RLENGTH + 1)
            } else {
                identifiers = identifiers " " s
                return out
            }
        }
        return out
    }
    # Prints the first occurrence of term number i in a text, unless the line is exempt.
    function find_term(i, text,    rest, at, before, after) {
        rest = text
        while ((at = index(rest, term[i])) > 0) {
            before = at == 1 ? " " : substr(rest, at - 1, 1)
            after = substr(rest, at + length(term[i]), 4)
            if (before !~ /[a-z0-9_-]/ && after !~ /^([a-z0-9_-]|\.[a-z])/ &&
                !(term[i] ~ /^stands?$/ && after ~ /^ for/)) {
                if ((FILENAME "\t" trim($0)) in exempt) used[FILENAME "\t" trim($0)] = 1
                else print FILENAME ":" FNR ": \"" term[i] "\": use " instead[i]
                return
            }
            rest = substr(rest, at + length(term[i]))
        }
    }
    BEGIN {
        while ((getline line < terms) > 0) {
            if (line ~ /^#/ || line == "") continue
            split(line, field, "\t")
            term[++n_terms] = tolower(field[1])
            instead[n_terms] = field[2]
            only[n_terms] = field[3] == "identifiers"
        }
        while ((getline line < exemptions) > 0)
            if (line !~ /^#/ && line != "") exempt[line] = 1
    }
    FNR == 1 { in_comment = fence = 0; kind = FILENAME ~ /\.([ch]|cpp|cuh?)$/ ? "c" : FILENAME ~ /\.md$/ ? "document" : "script" }
    {
        text = $0
        identifiers = ""
        if (kind == "c") {
            text = words_of_c($0)
            gsub(/[^a-zA-Z0-9_]+/, ";", identifiers)
            gsub(/_/, " ", identifiers)
        }
        if (kind == "document") {
            if ($0 ~ /^ *```/) { fence = !fence; next }
            if (fence) next
            if ($0 !~ /^(\||    |<!--)/) {
                columns = $0
                gsub(/[\200-\277]/, "", columns)
                if (length(columns) > 100) {
                    # A link cannot be broken: its text, or the word that crosses column 100, may be longer.
                    rest = substr(columns, 101)
                    sub(/[ \t].*/, "", rest)
                    word = substr(columns, 1, 100)
                    sub(/.*[ \t]/, "", word)
                    if ((word rest) !~ /\]\(|:\/\//)
                        print FILENAME ":" FNR ": " length(columns) " columns, at most 100"
                }
            }
            if ($0 ~ /^<!--/) text = ""
            gsub(/`[^`]*`/, " ", text)
        }
        lower = tolower(text)
        names = tolower(identifiers)
        for (i = 1; i <= n_terms; i++) {
            if (!only[i]) find_term(i, lower)
            if (names != "") find_term(i, names)
        }
    }
    END {
        for (line in exempt)
            if (!(line in used)) print exemptions ": unused: " line
    }' $(cat "$work/files") >"$work/findings"

# ---- spelling ----
if command -v codespell >/dev/null 2>&1; then
    # shellcheck disable=SC2046
    codespell --builtin clear,rare,en-GB_to_en-US --ignore-words "$here/codespell_ignore.txt" \
        $(cat "$work/files") >"$work/spelling" 2>/dev/null || true
    cat "$work/spelling" >>"$work/findings"
else
    echo "skipped: codespell is not installed"
fi

if [ -s "$work/findings" ]; then
    cat "$work/findings"
    echo "$(wc -l <"$work/findings") findings: see $0 for the rules and exemptions"
    exit 1
fi
