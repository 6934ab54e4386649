#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two network namespaces, a wire between them, and soft-RoCE on either end.
# Usage: topology.sh up|down, or source it for its functions.
#
#	memreg-owner: rxe_owner on mr_owner, 192.0.2.1 and fd00:6d72::1
#	memreg-peer:  rxe_peer on mr_peer, 192.0.2.2 and fd00:6d72::2
#
# It needs the rdma subsystem's netns mode to be shared, which is the default:
# a device is then seen from every namespace, and works in that of its netdev.
#
# Starting a process takes a second on a debug kernel in an emulator, so what
# the shell can do by itself it does.

TOPOLOGY_ENDS=(owner peer)
TOPOLOGY_TREE=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
INFINIBAND=/sys/class/infiniband

# await SECONDS COMMAND...: until it succeeds.
await() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		if ((SECONDS > end)); then
			echo "timed out: $*" >&2
			return 1
		fi
		sleep 0.05
	done
}

# module_load: ib_memreg, the one that was built if it is not installed.
module_load() {
	local built
	[ ! -d /sys/module/ib_memreg ] || return 0
	built=$TOPOLOGY_TREE/build/kernel-$(uname -r)/ib_memreg.ko
	modprobe -a rdma_cm rdma_ucm ib_uverbs || return
	if [ -e "$built" ]; then
		# shellcheck disable=SC2086 # several
		insmod "$built" ${MODULE_PARAMETERS:-}
	else
		# shellcheck disable=SC2086 # several
		modprobe ib_memreg ${MODULE_PARAMETERS:-}
	fi
}

# number END: the last number of its addresses; other_number END: of the other end.
number() {
	[ "$1" = owner ] && echo 1 || echo 2
}

other_number() {
	[ "$1" = owner ] && echo 2 || echo 1
}

# wire_up: the namespaces and the pair of interfaces.
wire_up() {
	ip netns add memreg-owner &&
		ip netns add memreg-peer &&
		ip link add mr_owner netns memreg-owner \
			address 02:00:00:00:02:01 type veth \
			peer name mr_peer netns memreg-peer \
			address 02:00:00:00:02:02 &&
		addresses_up owner &&
		addresses_up peer
}

# addresses_up END: works again after the link was down, when some are gone.
# nodad, as nobody else is there; each end gets a neighbour entry of the other, so
# that nothing needs to be resolved and waited for.
addresses_up() {
	local dev=mr_$1 own other
	own=$(number "$1")
	other=$(other_number "$1")
	ip -n "memreg-$1" -batch - <<-EOT
		link set lo up
		link set $dev up
		addr replace 192.0.2.$own/24 dev $dev
		addr replace fd00:6d72::$own/64 dev $dev nodad
		neigh replace 192.0.2.$other lladdr 02:00:00:00:02:0$other dev $dev
		neigh replace fd00:6d72::$other lladdr 02:00:00:00:02:0$other dev $dev
	EOT
}

# rxe_up END
rxe_up() {
	[ -d /sys/module/rdma_rxe ] || modprobe rdma_rxe || return
	ip netns exec "memreg-$1" rdma link add "rxe_$1" type rxe netdev "mr_$1"
}

# rxe_down END
rxe_down() {
	[ ! -d "$INFINIBAND/rxe_$1" ] || rdma link delete "rxe_$1"
}

# rxe_has_gid END GID
rxe_has_gid() {
	local file gid
	for file in "$INFINIBAND/rxe_$1/ports/1/gids"/[0-7]; do
		{ read -r gid <"$file"; } 2>/dev/null && [ "$gid" = "$2" ] &&
			return
	done
	return 1
}

# rxe_active END: it is active, and has the GIDs of both addresses.
rxe_active() {
	local state
	{ read -r state <"$INFINIBAND/rxe_$1/ports/1/state"; } 2>/dev/null &&
		[[ $state = *ACTIVE ]] &&
		rxe_has_gid "$1" "0000:0000:0000:0000:0000:ffff:c000:020$2" &&
		rxe_has_gid "$1" "fd00:6d72:0000:0000:0000:0000:0000:000$2"
}

# rxe_ready END: it is active, and its GSI QP works, which carries the RDMA CM.
# That is in error for good once a packet could not be sent, as when the link
# was down.
rxe_ready() {
	rxe_active "$1" "$(number "$1")" &&
		[[ $(rdma resource show qp link "rxe_$1" 2>/dev/null) = \
			*'type GSI state RTS'* ]]
}

topology_ready() {
	rxe_ready owner && rxe_ready peer
}

topology_up() {
	module_load || return
	if topology_ready; then
		return
	fi
	topology_down
	wire_up && rxe_up owner && rxe_up peer && await 60 topology_ready
}

# topology_down: remove it, also if it was set up only in part. A device goes
# some time after its interface, which may be under way.
topology_down() {
	local end
	for end in "${TOPOLOGY_ENDS[@]}"; do
		rxe_down "$end" 2>/dev/null
	done
	for end in "${TOPOLOGY_ENDS[@]}"; do
		[ ! -e "/run/netns/memreg-$end" ] ||
			ip netns delete "memreg-$end"
	done
	await 60 topology_gone
}

topology_gone() {
	[ ! -e $INFINIBAND/rxe_owner ] && [ ! -e $INFINIBAND/rxe_peer ]
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	case ${1:-} in
	up) topology_up ;;
	down) topology_down ;;
	*) sed -n '2,/^$/s/^# \?//p' "$0" >&2; exit 2 ;;
	esac
fi
