#!/bin/sh
# rsh.sh ADDRESS WORD...: runs a command line on a host of network.sh, as ssh does on another machine. mpirun uses it to
# start its daemons.
host=$DDL_NETWORK-${1##*.}
shift
exec ip netns exec "$host" unshare -u sh -c "hostname host${host##*-}; $*"
