#!/bin/sh
# recipes/paper/analysis.sh RUNS OUT: what small.yaml's runs show, in the folder OUT: contrasts.md (the protocol's contrasts,
# groups and costs), validation loss over tokens, FLOPs and training time as figures, and the runs' figures as CSV.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 RUNS OUT" >&2; exit 2; }
ddl=${DDL:-build/release/ddl}
[ -n "${DDL:-}" ] || [ -x "$ddl" ] || ddl=ddl # installed
command -v "$ddl" >/dev/null || { echo "$0: $ddl not found: run ./dev build in the root of the source tree first, and run this script there" >&2; exit 1; }
mkdir -p "$2"
"$ddl" compare "$1" --baseline baseline --val --markdown >"$2/contrasts.md"
for x in tokens flops train_seconds; do
    "$ddl" compare "$1" --baseline baseline --val --x "$x" --svg "$2/loss-$x.svg" >/dev/null
done
"$ddl" compare "$1"/*_seed=* --val --csv >"$2/runs.csv"
echo "$2: contrasts.md, loss-tokens.svg, loss-flops.svg, loss-train_seconds.svg, runs.csv"
