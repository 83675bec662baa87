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
    apt-get purge -y -qq ddl libddl-dev 'libddl0*' >/tmp/apt.log 2>&1
    ! find /usr /etc /var/lib -name '*ddl*' ! -path '/usr/share/perl*' | grep -i . || fail "files left after removal"
}

apt-get update -qq
check program program
check library library
check removed removed
finish
