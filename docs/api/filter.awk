# Doxygen input filter: converts the plain comments of the headers:
#
#   the file's first comment              @file
#   a comment before a declaration        /** ... */
#   a comment after a member              /**< ... */, for each member of the line
#   a line indented by four or more       @verbatim (an equation)
#   a parameter named in the comment      @param that refers to it; likewise a member named in the comments above it
#   a conventional parameter or member    its description, below
#   the result of a function              @return: DDL_OK or the error; else the first clause of the comment
#
# Any other parameter or member gets no description; Doxygen reports it as a warning, which is an error here.

BEGIN {
    custom["struct ddl_error *err"] = "set to a one-line message on failure; may be NULL."
    custom["struct ddl_json *json"] = "the writer."
    custom["const char *key"] = "name of the value in an object; NULL in an array or at the top."
    custom["void *user"] = "passed to the callback."
    custom["size_t i"] = "index from 0."
    custom["size_t size"] = "in bytes."
    custom["const struct ddl_batch *batch"] = "tokens and targets."
    custom["struct ddl_loss *loss"] = "set to the loss."
    n_kinds = split("backend comm model workspace session tokenizer shards block task", kinds, " ")
    for (i = 1; i <= n_kinds; i++) {
        type = "ddl_" kinds[i]
        name = kinds[i] == "workspace" ? "ws" : kinds[i]
        custom[type " *" name] = "the " kinds[i] "; borrowed."
        custom["const " type " *" name] = custom[type " *" name]
        custom[type " **out"] = "set to the new " kinds[i] ", owned by the caller; NULL after an error."
    }
    custom["size_t slot"] = "a slot, from 0 on."
    letter["N"] = "Rows."
    letter["B"] = "Sequences."
    letter["T"] = "Tokens per sequence."
    letter["d"] = "Width."
    letter["c"] = "Value channels."
}

{ line[++n] = $0 }

END {
    i = 1
    while (i <= n) {
        if (line[i] ~ /^[ \t]*\/\*/)
            i = block(i)
        else if (line[i] ~ /^(DDL_API|typedef .*_fn\()/)
            i = declaration(i, "")
        else if (line[i] ~ /^ +[a-z][^(]*;/)
            i = member(i)
        else {
            if (line[i] ~ /^}/)
                above = ""
            print trailing(line[i++])
        }
    }
}

# Escapes Doxygen markup. `name` becomes code.
function plain(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    gsub(/@/, "\\@", text)
    gsub(/#/, "\\#", text)
    gsub(/%/, "\\%", text)
    gsub(/\*/, "\\*", text)
    while (match(text, /`[^`]*`/))
        text = substr(text, 1, RSTART - 1) "<code>" substr(text, RSTART + 1, RLENGTH - 2) "</code>" \
            substr(text, RSTART + RLENGTH)
    return text
}

function names(text, name) {
    return text ~ ("(^|[^A-Za-z0-9_])" name "([^A-Za-z0-9_]|$)")
}

function trailing(text,    at) {
    at = index(text, "/*")
    if (!at || text !~ /;|,|\}|=|^ +DDL_|^#define/)
        return text
    return substr(text, 1, at - 1) "/**< " plain(substr(text, at + 2))
}

# A line of struct members, "float *a, *b; /* of both */": each gets the comment. Starts at line i.
function member(i,    code, note, list, count, type, k, name) {
    code = line[i++]
    note = ""
    if (match(code, /\/\*.*/)) {
        note = substr(code, RSTART + 2)
        code = substr(code, 1, RSTART - 1)
        while (note !~ /\*\// && i <= n)
            note = note " " line[i++]
        sub(/[ \t]*\*\/.*$/, "", note)
        gsub(/[ \t]+/, " ", note)
        above = above note
    }
    sub(/;[ \t]*$/, "", code)
    sub(/^[ \t]+/, "", code)
    count = split(code, list, /, */)
    type = list[1]
    sub(/[ ]*\**[A-Za-z_0-9]+(\[[^]]*\])*$/, "", type)
    for (k = 1; k <= count; k++) {
        if (k == 1)
            list[1] = substr(list[1], length(type) + 1)
        name = list[k]
        gsub(/[ *]|\[.*$/, "", name)
        if (note != "")
            printf "    %s %s; /**< %s */\n", type, list[k], plain(note)
        else if (names(above, name))
            printf "    %s %s; /**< As said above. */\n", type, list[k]
        else if (name in letter)
            printf "    %s %s; /**< %s */\n", type, list[k], letter[name]
        else
            printf "    %s %s;\n", type, list[k]
    }
    return i
}

# A comment at the start of line i, and the declaration below it. Returns the index of the next line.
function block(i,    text, raw, first, l, ended, code, equation) {
    first = i == 1
    text = ""
    raw = ""
    equation = 0
    do {
        l = line[i++]
        ended = index(l, "*/")
        sub(/^[ \t]*\/\*/, "", l)
        sub(/^[ \t]*\*( |$)/, " ", l)
        sub(/[ \t]*\*\/.*$/, "", l)
        code = l ~ /^     +[^ ]/
        if (code && !equation)
            text = text "\n@verbatim"
        if (!code && equation)
            text = text "\n@endverbatim"
        equation = code
        text = text "\n" (code ? l : plain(l))
        raw = raw "\n" l
    } while (!ended)
    if (equation)
        text = text "\n@endverbatim"
    if (first) {
        print "/** @file" text "\n */"
        return i
    }
    if (line[i] ~ /^(DDL_API|typedef .*_fn\()/)
        return declaration(i, text, raw)
    if (line[i] ~ /^struct/)
        above = raw
    printf "/**%s\n */\n", text
    return i
}

# The description of a conventional parameter, or nothing.
function customary(param, name, all,    noun) {
    if (param in custom)
        return custom[param]
    if (param ~ /^const struct ddl_[a-z_]*config \*config$/)
        return "what is wanted; read during the call."
    if (param ~ /^const struct ddl_[a-z_]*args \*args$/)
        return "what it reads, and where it writes."
    if (param ~ /_result \*(out|result)$|_totals \*totals$/)
        return "gets the result."
    if (param ~ /_progress \*progress$/)
        return "the progress; borrowed for the duration of the call."
    noun = substr(name, 3)
    if (name ~ /^n_/ && names(all, noun))
        return "how many " noun "."
    return ""
}

# A function declaration starting at line i, with the comments before and after it.
function declaration(i, text, raw,    whole, behind, body, list, k, count, params, name, returns, clause) {
    whole = ""
    behind = ""
    do {
        body = line[i++]
        if (match(body, /\/\*.*/)) {
            behind = behind substr(body, RSTART + 2)
            sub(/[ \t]*\*\/[ \t]*$/, "", behind)
            body = substr(body, 1, RSTART - 1)
        }
        whole = whole " " body
    } while (body !~ /;/)
    if (behind != "") {
        text = text "\n" plain(behind)
        raw = raw "\n" behind
    }
    gsub(/[ \t]+/, " ", whole)
    sub(/ DDL_PRINTF\([^)]*\)/, "", whole)
    sub(/ DDL_NORETURN/, "", whole)
    list = whole
    sub(/^[^(]*\(/, "", list)
    sub(/\) ?; ?$/, "", list)
    count = split(list, params, /, */)
    clause = text
    for (k = 1; k <= count && text != ""; k++) {
        name = params[k]
        if (name == "void" || name == "...")
            continue
        sub(/^.*[ *]/, "", name)
        if (names(raw, name))
            text = text "\n@param " name " as said above."
        else if (customary(params[k], name, list) != "")
            text = text "\n@param " name " " customary(params[k], name, list)
    }
    returns = whole
    sub(/\(.*$/, "", returns)
    if (returns ~ /ddl_status [a-z_0-9]+$/ && returns !~ /\*/)
        text = text (text == "" ? "" : "\n@return DDL_OK, or why not (status.h).")
    else if (returns !~ /void [a-z_0-9]+$/ && text != "") {
        gsub(/\n/, " ", clause)
        sub(/^ +/, "", clause)
        if (match(clause, /[.;:] |\.$/))
            clause = substr(clause, 1, RSTART - 1)
        text = text "\n@return " clause "."
    }
    if (text != "")
        printf "/**%s\n */\n", text
    print whole
    return i
}
