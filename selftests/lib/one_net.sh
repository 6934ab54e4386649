#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A wire with both ends in the network namespace that the machine began with,
# and soft-RoCE on either end: nvme_rdma and nvmet_rdma know no other.
# Usage: one_net.sh up|down, or source it for its functions.
#
#	rxe_owner on mr_owner, 192.0.2.1
#	rxe_peer on mr_peer, 192.0.2.2
#
# What goes from one of its own addresses to another one, a machine keeps to
# itself: the table of local addresses is asked first. Here rules come before
# it that send it by the wire. They are for what is sent ('iif lo'), and for the
# RDMA CM, which asks by itself whether it would answer by the interface that a
# request came from ('oif'). What comes in finds its address as ever.

ONE_NET_TABLES=(101 102)
LOCAL_RULE=200

# one_net_up: make both ends. Fails if interfaces or devices of these names
# exist.
one_net_up() {
	modprobe -a rdma_rxe rdma_cm && one_net_wire &&
		rdma link add rxe_owner type rxe netdev mr_owner &&
		rdma link add rxe_peer type rxe netdev mr_peer &&
		await 60 one_net_ready
}

# one_net_wire: all but soft-RoCE.
one_net_wire() {
	ip link add mr_owner address 02:00:00:00:02:01 type veth \
		peer name mr_peer address 02:00:00:00:02:02 &&
		one_net_end owner 1 2 && one_net_end peer 2 1 &&
		ip rule add pref $LOCAL_RULE lookup local &&
		ip rule del pref 0
}

# one_net_end END OWN OTHER: set the address of an end and its route to the
# other one. The interface accepts packets from an address of this machine.
one_net_end() {
	local dev=mr_$1 own=192.0.2.$2 other=192.0.2.$3 table=10$2
	sysctl -qw "net.ipv4.conf.$dev.accept_local=1" \
		"net.ipv4.conf.$dev.rp_filter=0" &&
		ip link set "$dev" up &&
		ip addr add "$own/32" dev "$dev" &&
		ip neigh add "$other" lladdr "02:00:00:00:02:0$3" dev "$dev" &&
		ip route add "$other" dev "$dev" src "$own" table "$table" &&
		ip rule add pref "$table" iif lo to "$other" lookup "$table" &&
		ip rule add pref "$table" oif "$dev" from "$own" to "$other" \
			lookup "$table"
}

one_net_ready() {
	local end state gid own=1
	for end in owner peer; do
		{ read -r state <"$INFINIBAND/rxe_$end/ports/1/state"; } 2>/dev/null &&
			[[ $state = *ACTIVE ]] &&
			rxe_has_gid $end "0000:0000:0000:0000:0000:ffff:c000:020$own" ||
			return
		own=2
	done
}

# one_net_down: remove it, also if it was set up only in part.
one_net_down() {
	local end table
	if ! ip rule show pref 0 | grep -q local; then
		ip rule add pref 0 lookup local
	fi
	for table in "${ONE_NET_TABLES[@]}" $LOCAL_RULE; do
		while ip rule del pref "$table" 2>/dev/null; do :; done
	done
	for end in owner peer; do
		rxe_down $end
	done
	[ ! -e /sys/class/net/mr_owner ] || ip link delete mr_owner
	await 60 topology_gone
}

# one_net_bytes: print how many bytes the wire has carried, in both directions.
one_net_bytes() {
	local sent received
	read -r sent </sys/class/net/mr_owner/statistics/tx_bytes &&
		read -r received </sys/class/net/mr_owner/statistics/rx_bytes &&
		echo $((sent + received))
}

# shellcheck source-path=SCRIPTDIR source=topology.sh
. "${BASH_SOURCE[0]%/*}/topology.sh"

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	case ${1:-} in
	up) one_net_up ;;
	down) one_net_down ;;
	*) sed -n '2,/^$/s/^# \?//p' "$0" >&2; exit 2 ;;
	esac
fi
