# Functions of the scripts that compare ddl with other programs; sourced.

# field NAME: prints the number with that key of a JSON object on standard input
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
# The name of the processor.
processor() { grep -m1 'model name' /proc/cpuinfo 2>/dev/null | sed 's/.*: //' || true; }
