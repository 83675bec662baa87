# Functions of the scripts that compare ddl with other programs; sourced.

# field NAME: prints the number with that key of a JSON object on standard input
field() { sed -n "s/.*\"$1\": \([0-9.eE+-]*\).*/\1/p"; }
# named_models PROGRAM: their names, in its order.
named_models() { "$1" info | awk '/^models/ { on = 1; next } /^[^ ]/ { on = 0 } on { print $1 }'; }
# profiled FILE: each op of a report of `ddl bench step --ops`: op seconds calls flops bytes
profiled() {
    grep -o '"op": "[^"]*", "seconds": [0-9.eE+-]*, "calls": [0-9.eE+-]*, "flops": [0-9.eE+-]*, "bytes": [0-9.eE+-]*' "$1" |
        tr -d '",' | awk '{ print $2, $4, $6, $8, $10 }'
}
# The median of the numbers on standard input; of an even number of them, the mean of the middle two.
median() { sort -n | awk '{ x[NR] = $1 } END { printf "%.9g\n", (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
# The name of the processor.
processor() { grep -m1 'model name' /proc/cpuinfo 2>/dev/null | sed 's/.*: //' || true; }
# Prints the comment at the beginning of the script.
usage() { sed -n '1d; /^#/!q; s/^# \{0,1\}//p' "$0" >&2; }
# take_options "--NAME ..." "$@": sets the variable NAME for each argument pair --NAME VALUE.
take_options() {
    options=$1
    shift
    while [ $# -gt 0 ]; do
        case $1 in -h | --help) usage; exit 0 ;; esac
        case " $options " in
        *" $1 "*) ;;
        *) echo "$0: unknown option '$1'" >&2; usage; exit 2 ;;
        esac
        [ $# -gt 1 ] || { echo "$0: $1: missing value" >&2; exit 2; }
        eval "${1#--}=\$2"
        shift 2
    done
}
