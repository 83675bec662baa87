# shellcheck shell=sh
# Hosts on this machine, for tests of several hosts: each is a network namespace with an address and a name of its own, all
# connected to a switch (a bridge in another namespace). Needs root, ip and tc. Nothing outside of the namespaces is changed.
#
#   network_up HOSTS RATE DELAY    creates hosts 1 to HOSTS with links of RATE ("1gbit") and DELAY ("1ms", "" for none)
#   network_down                   removes them, with all processes in them
#   host_down HOST                 cuts the link of a host
#   slow_down HOST RATE            limits what a host sends
#   on_hosts HOSTS COMMAND...      mpirun on host 1, one rank per host; DDL_* variables are passed on
#   none_on_hosts PROGRAM          whether no process of that name is left on any host
#
# Set cluster, the path of this folder, before sourcing. JOB_SECONDS (default 120) is the time limit of on_hosts.
network=ddl$$

# need_network: ends the script with a message and status 77 where there can be no hosts.
need_network() {
    missing=""
    [ "$(id -u)" -eq 0 ] || missing="needs root"
    for tool in ip tc unshare mpirun; do
        command -v $tool >/dev/null 2>&1 || missing="$tool is not installed"
    done
    [ -n "$missing" ] || ip netns add "$network-try" 2>/dev/null || missing="network namespaces cannot be created here"
    [ -z "$missing" ] || { skip cluster "$missing"; exit 77; }
    ip netns del "$network-try"
}

# The last byte of an address is the number of the host.
address() { echo "10.77.0.$1"; }

# limit add|change NAMESPACE DEVICE RATE: a token bucket, as small as it can be: it has to hold a packet of 64 KiB (the
# network device divides it), and what is sent until the timer of the kernel adds tokens again.
limit() {
    burst=70kb
    [ "$4" != 10gbit ] || burst=140kb
    tc -n "$2" qdisc "$1" dev "$3" root handle 1: tbf rate "$4" burst "$burst" latency 50ms
}

can_delay() {
    ip netns add "$network-try"
    status=0
    tc -n "$network-try" qdisc add dev lo root netem delay 1ms >/dev/null 2>&1 || status=1
    ip netns del "$network-try"
    return $status
}

network_up() {
    ip netns add "$network-switch"
    ip -n "$network-switch" link add bridge type bridge
    ip -n "$network-switch" link set bridge up
    for host in $(seq "$1"); do
        ip netns add "$network-$host"
        ip -n "$network-$host" link set lo up
        ip netns exec "$network-$host" sh -c 'echo 6 >/proc/sys/net/ipv4/tcp_retries2'
        ip -n "$network-switch" link add "port$host" type veth peer name eth0 netns "$network-$host"
        ip -n "$network-switch" link set "port$host" master bridge up
        ip -n "$network-$host" addr add "$(address "$host")/24" dev eth0
        ip -n "$network-$host" link set eth0 up
        limit add "$network-$host" eth0 "$2"
        limit add "$network-switch" "port$host" "$2"
        [ -z "$3" ] || tc -n "$network-$host" qdisc add dev eth0 parent 1:1 netem delay "$3" limit 100000
    done
}

network_down() {
    for name in $(ip netns list | sed -n "s/^\($network-[a-z0-9]*\).*/\1/p"); do
        # shellcheck disable=SC2046 # one word per process
        kill -KILL $(ip netns pids "$name") 2>/dev/null || true
        ip netns del "$name"
    done
}

slow_down() { limit change "$network-$1" eth0 "$2"; }

host_down() { ip -n "$network-switch" link set "port$1" down; }

none_on_hosts() {
    for name in $(ip netns list | sed -n "s/^\($network-[0-9][0-9]*\).*/\1/p"); do
        for process in $(ip netns pids "$name"); do
            [ "$(cat "/proc/$process/comm" 2>/dev/null)" != "$1" ] || return 1
        done
    done
}

# mpirun ends when the connection to the daemon of a vanished host is closed: after 23 s without an answer to keepalives,
# or to data (tcp_retries2, in network_up). The defaults are 8 and 15 minutes. All hosts have the same processors, so
# ranks are not bound to any: the first rank of each host would be bound to the same one.
on_hosts() {
    addresses=$(for host in $(seq "$1"); do address "$host"; done | paste -sd,)
    ranks=$1
    shift
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DDL_NETWORK=$network \
        sh "$cluster/rsh.sh" "$(address 1)" exec timeout -k 5 "${JOB_SECONDS:-120}" mpirun -n "$ranks" --bind-to none \
        --host "$addresses" --mca plm_rsh_agent "'$cluster/rsh.sh'" --mca btl tcp,self \
        --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
        --mca oob_tcp_keepalive_time 20 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
        "$(env | sed -n 's/^\(DDL_[A-Z_]*\)=.*/-x \1/p' | paste -sd' ')" "$@"
}
