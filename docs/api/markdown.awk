# Filters a Markdown document for Doxygen, in which an anchor is a name that no other document has. A document gets the
# anchor DOCUMENT, which is also the name of its page, and a heading DOCUMENT-HEADING, with the heading as GitHub writes it
# in links; links are changed to these. A link to a file that is not a page becomes its text.
function anchor(heading,    s) {
    s = tolower(heading)
    gsub(/`/, "", s)
    gsub(/[^[:alnum:]_ -]/, "", s)
    gsub(/ /, "-", s)
    return s
}
function page(path) {
    sub(/\.md$/, "", path)
    gsub(/.*\//, "", path)
    return path
}
FNR == 1 { here = page(FILENAME) }
/^<!-- .* -->$/ { next }
/^```/ { code = !code }
code || /^```/ { print; next }
/^# / {
    print here == "README" ? $0 : $0 " {#" here "}"
    next
}
/^##/ {
    heading = $0
    sub(/^#+ */, "", heading)
    print $0 " {#" here "-" anchor(heading) "}"
    next
}
{
    if (!/`/) gsub(/@/, "\\\\@")
    out = ""
    rest = $0
    while (match(rest, /\]\([^)]*\)/)) {
        link = substr(rest, RSTART + 2, RLENGTH - 3)
        out = out substr(rest, 1, RSTART)
        rest = substr(rest, RSTART + RLENGTH)
        at = index(link, "#")
        if (link ~ /^[a-z]+:/ || link ~ /\.(svg|png)$/)
            out = out "(" link ")"
        else if (at)
            out = out "(#" (at == 1 ? here : page(substr(link, 1, at - 1))) "-" substr(link, at + 1) ")"
        else if (link ~ /\.md$/ && link !~ /^examples/)
            out = out "(#" page(link) ")"
        else
            sub(/\[[^[]*$/, substr(out, match(out, /[^[]*$/), RLENGTH - 1), out)
    }
    print out rest
}
