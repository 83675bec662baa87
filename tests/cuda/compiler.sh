#!/bin/sh
# compiler.sh SOURCE [NVCC]: what nvcc makes of the CUDA kernels: none spills registers to memory, those of docs/cuda.md's
# table have the registers, vector accesses and tensor-core instructions that it says; and the machine code has such
# accesses and instructions too, where there is a disassembler (nvdisasm).
#   compiler.sh --table SOURCE NVCC prints that table.
set -eu
table=
[ "$1" != --table ] || { table=1; shift; }
source=$1
nvcc=${2:-}
architectures="80 90 100 120"
disassembler=$(command -v nvdisasm || true)
. "$source/tests/support/checks.sh"
[ -n "$nvcc" ] || { skip compiler "there is no nvcc"; finish; }

# compile FILE: its kernels, a line "kernel ARCHITECTURE registers static_shared spilled_bytes" for each architecture, and
# a line "kernel ptx threads vector_accesses mma". As in DdlCuda.cmake, PTX of one architecture becomes the code of all.
compile() {
    name=$(basename "$1" .cu) contract=false
    case $name in attention | products) contract=true ;; esac
    "$nvcc" -std=c++17 -O3 -fmad=$contract -arch=compute_80 -ptx -I"$source/src" -I"$source/include" -o "$name.ptx" "$1"
    for architecture in $architectures; do
        "$nvcc" -O3 -arch="sm_$architecture" -cubin -Xptxas -v -o "$name.cubin" "$name.ptx" >ptxas.txt 2>&1 ||
            { cat ptxas.txt >&2; exit 1; }
        awk -v architecture="$architecture" '
            /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
            /bytes spill stores/ { spilled = $5 + $9 }
            / Used [0-9]+ registers/ {
                shared = 0
                for (i = 1; i < NF; i++) {
                    if ($i == "Used") registers = $(i + 1)
                    if ($(i + 2) ~ /^smem/) shared = $i
                }
                print kernel, architecture, registers, shared, spilled
            }' ptxas.txt
        [ -n "$disassembler" ] || continue
        "$disassembler" -c "$name.cubin" >machine.txt
        awk -v architecture="$architecture" '
            /^\.text\./ { kernel = $1; gsub(/^\.text\.|:$/, "", kernel); seen[kernel] }
            /(LDG|STG|LDGSTS)\.[.A-Z0-9]*128/ { vectors[kernel]++ }
            /HMMA/ { mma[kernel]++ }
            END { for (kernel in seen) print kernel, "machine", architecture, vectors[kernel] + 0, mma[kernel] + 0 }' machine.txt
    done
    awk '/\.entry/ { kernel = $3; sub(/\(.*/, "", kernel); order[++n] = kernel }
        /^\.maxntid/ { threads[kernel] = $2 + 0 }
        /(ld|st)\.global[.a-z]*\.v4\.|cp\.async\.cg/ { vectors[kernel]++ }
        /mma\.sync/ { mma[kernel]++ }
        END { for (i = 1; i <= n; i++) print order[i], "ptx", threads[order[i]], vectors[order[i]] + 0, mma[order[i]] + 0 }' \
        "$name.ptx"
}

# The table of all kernels. Occupancy: the threads that registers and static shared memory let a multiprocessor of
# architecture 9.0 (65,536 registers, 228 KiB, 2,048 threads) hold, as a share of the most.
print_table() {
    echo '```text'
    echo "kernel                       threads  registers    occupancy  shared  16-byte  mma"
    echo "                                      8.0 9.0 10.0         %   bytes accesses"
    awk 'function unless_0(x) { return x ? x : "" }
        $2 == "machine" { next }
        $2 == "ptx" { order[++n] = $1; threads[$1] = $3; vectors[$1] = $4; mma[$1] = $5; next }
        { registers[$1, $2] = $3; if ($2 == 90) shared[$1] = $4 }
        END {
            for (i = 1; i <= n; i++) {
                k = order[i]
                rounded = int((registers[k, 90] + 7) / 8) * 8
                blocks = int(65536 / (rounded * threads[k]))
                if (blocks * threads[k] > 2048) blocks = int(2048 / threads[k])
                if (shared[k] && blocks * (shared[k] + 1024) > 233472) blocks = int(233472 / (shared[k] + 1024))
                if (blocks > 32) blocks = 32
                line = sprintf("%-28s %7d  %3d %3d %4d %9d %7s %8s %4s", k, threads[k], registers[k, 80], registers[k, 90],
                    registers[k, 100], 100 * blocks * threads[k] / 2048, unless_0(shared[k]), unless_0(vectors[k]), unless_0(mma[k]))
                sub(/ +$/, "", line)
                print line
            }
        }' "$1"
    echo '```'
}

: >kernels.txt
for file in "$source"/src/backend/cuda/kernels/*.cu; do
    compile "$file" >>kernels.txt
done
[ -z "$table" ] || { print_table kernels.txt; exit 0; }

# Each kernel has a line of each architecture.
complete() {
    awk -v list="$architectures" '$2 != "machine" { lines[$1, $2]++ }
        $2 == "ptx" { kernels[++n] = $1 }
        END {
            if (n == 0) print "no kernels"
            m = split(list, each, " ")
            for (i = 1; i <= n; i++)
                for (j = 1; j <= m; j++)
                    if (lines[kernels[i], each[j]] != 1) print kernels[i], each[j]
        }' kernels.txt >missing.txt
    ! grep . missing.txt || fail "ptxas reports nothing of them"
}

no_spills() { ! awk '$2 ~ /^[0-9]+$/ && $5 > 0' kernels.txt | grep . || fail "registers are spilled to memory"; }

# Where PTX has 128-bit accesses or tensor-core instructions, ptxas must keep some.
machine_code() {
    awk -v list="$architectures" '
        $2 == "ptx" { kernels[++n] = $1; vectors[$1] = $4; mma[$1] = $5 }
        $2 == "machine" { seen[$1, $3] = 1; found_vectors[$1, $3] = $4; found_mma[$1, $3] = $5 }
        END {
            m = split(list, each, " ")
            for (i = 1; i <= n; i++) {
                k = kernels[i]
                if (k ~ /^attention_mma/ && !mma[k]) print k, "no mma in PTX"
                for (j = 1; j <= m; j++) {
                    if (!seen[k, each[j]]) print k, each[j], "no machine code"
                    if (vectors[k] && !found_vectors[k, each[j]]) print k, each[j], "no 128-bit access"
                    if (mma[k] && !found_mma[k, each[j]]) print k, each[j], "no tensor-core instruction"
                }
            }
        }' kernels.txt >missing.txt
    ! grep . missing.txt || fail "the machine code differs"
}

# Other versions of nvcc allocate registers differently.
as_documented() {
    print_table kernels.txt >expected.txt
    awk '/<!-- kernels -->/ { on = 1; next } /<!-- end -->/ { on = 0 } on && NF' "$source/docs/cuda.md" >documented.txt
    diff documented.txt expected.txt || fail "docs/cuda.md: replace the table by that of sh tests/cuda/compiler.sh --table . nvcc"
}

check complete complete
check no_spills no_spills
if [ -n "$disassembler" ]; then
    check machine_code machine_code
else
    skip machine_code "there is no nvdisasm"
fi
case $("$nvcc" --version) in
    *"release 13.0"*) check as_documented as_documented ;;
    *) skip as_documented "the table is that of nvcc 13.0" ;;
esac
finish
