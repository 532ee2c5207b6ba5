#!/usr/bin/env bash
# Runs a command under mpirun on "hosts" that are network namespaces of this machine, one rank on each,
# joined by a bridge whose ports have a given rate. Needs root, iproute2 and Open MPI.
#   tests/distributed/net.sh RATE RANKS COMMAND...
#   tests/distributed/net.sh 100mbit 2 build/release/apps/tapestry train CONFIG
# The namespaces are removed at the end.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
rate=$1 ranks=$2
shift 2
command -v mpirun >/dev/null && command -v tc >/dev/null && [ "$(id -u)" -eq 0 ] ||
  { echo "skipped: mpirun, tc or root is missing" >&2; exit 77; }

name=tap$$          # of everything that is made here
net=10.77.0
work=$(mktemp -d)
clean() {
  for ((i = 1; i <= ranks; ++i)); do ip netns del "$name-$i" 2>/dev/null || true; done
  ip netns del "$name-0" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT

# The bridge, and mpirun, are in a namespace of their own: nothing of this machine's network is touched.
ip netns add "$name-0"
on_bridge() { ip netns exec "$name-0" "$@"; }
on_bridge ip link set lo up
on_bridge ip link add br0 type bridge
on_bridge ip link set br0 up
on_bridge ip addr add $net.254/24 dev br0
# A port's buffer has a size, not a time: what is lost from a full one comes again 200 ms later.
limit() { tc qdisc add dev "$1" root tbf rate "$rate" burst 128kb limit 640kb; }
export -f limit
export rate
hosts=
for ((i = 1; i <= ranks; ++i)); do
  ip netns add "$name-$i"
  on_bridge ip link add "v$i" type veth peer name e0 netns "$name-$i"
  on_bridge ip link set "v$i" master br0 up
  on_bridge bash -c "limit v$i"
  ip netns exec "$name-$i" ip link set lo up
  ip netns exec "$name-$i" ip addr add "$net.$i/24" dev e0
  ip netns exec "$name-$i" ip link set e0 up
  ip netns exec "$name-$i" bash -c "limit e0"
  hosts+=${hosts:+,}$net.$i:1
done

# Host names of their own, or the ranks look local to each other.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
host=\${1##*.}
shift
exec ip netns exec "$name-\$host" unshare --uts bash -c "hostname node\$host; \$*"
AGENT
chmod +x "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
on_bridge mpirun --host "$hosts" -np "$ranks" --bind-to none \
  --mca plm_rsh_agent "$work/agent" --mca btl tcp,self \
  --mca btl_tcp_if_include $net.0/24 --mca oob_tcp_if_include $net.0/24 "$@"
