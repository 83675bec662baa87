#!/bin/sh
# Run by `./dev test-package` in a minimal Debian root with the packages in /debs and this tree in /ddl: installs and
# uses the program alone; then installs the library and builds programs with it; then removes everything.
set -eu
. /ddl/tests/support/checks.sh
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND

apt_install() {
    apt-get install -y -qq --no-install-recommends "$@" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
}

program() {
    apt_install /debs/ddl_*.deb
    ! command -v gcc || fail "the program package depends on a compiler"
    cd /
    sh /ddl/tests/install/use_ddl.sh /usr/bin/ddl /tmp/day
}

# Without ddl-mpi no MPI library is installed, and with it the program finds the plugin. Two ranks then train on the shards
# of `program`.
mpi() {
    ddl --version --verbose | grep '^MPI: none (libddl_mpi.so: the MPI plugin is not installed: install the package ddl-mpi)'
    apt_install /debs/ddl-mpi_*.deb
    ddl --version --verbose | grep '^MPI: .*MPI'
    apt_install openmpi-bin
    mpirun --allow-run-as-root --oversubscribe -n 2 ddl train --quiet --model ddl-cc-ec --size micro --vocab-size 300 \
        --block-size 64 --tokenizer /tmp/day/tokenizer.json --train-data /tmp/day/shards --val-every 0 --batch 1 --seq 32 \
        --steps 3 --warmup 1 --threads 1 --out /tmp/day/ranks
    [ -f /tmp/day/ranks/model.safetensors ] || fail "no model"
}

library() {
    apt_install /debs/lib*.deb gcc libc6-dev g++ cmake ninja-build pkg-config
    ldconfig -p | grep libddl
    find /usr/lib -name ddl.pc | grep "/usr/lib/.*-linux-gnu/pkgconfig/ddl.pc"
    # shellcheck disable=SC2046
    cc -std=c11 /ddl/tests/install/outside/outside.c $(pkg-config --cflags --libs ddl) -lm -o /tmp/by_pkg_config
    /tmp/by_pkg_config
    cmake -G Ninja -S /ddl/tests/install/outside -B /tmp/outside -DLANGUAGE=CXX -DCMAKE_BUILD_TYPE=Release >/dev/null
    cmake --build /tmp/outside >/dev/null
    /tmp/outside/with_ddl
    /tmp/outside/with_ddl_static
}

removed() {
    apt-get purge -y -qq ddl ddl-mpi libddl-dev 'libddl0*' >/tmp/apt.log 2>&1
    ! find /usr /etc /var/lib -name '*ddl*' ! -path '/usr/share/perl*' | grep -i . || fail "files left after removal"
}

apt-get update -qq
check program program
check mpi mpi
check library library
check removed removed
finish
