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

TOPOLOGY_ENDS=(owner peer)
declare -A TOPOLOGY_IP4=([owner]=192.0.2.1 [peer]=192.0.2.2)
declare -A TOPOLOGY_IP6=([owner]=fd00:6d72::1 [peer]=fd00:6d72::2)

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

topology_tree() {
	dirname "$(realpath "${BASH_SOURCE[0]}")" | xargs -I{} realpath {}/../..
}

# module_load: ib_memreg, the one that was built if it is not installed.
module_load() {
	local built
	[ ! -d /sys/module/ib_memreg ] || return 0
	built=$(topology_tree)/build/kernel-$(uname -r)/ib_memreg.ko
	modprobe -a rdma_cm rdma_ucm ib_uverbs || return
	if [ -e "$built" ]; then
		insmod "$built"
	else
		modprobe ib_memreg
	fi
}

# wire_up: the namespaces and the pair of interfaces.
wire_up() {
	local end
	for end in "${TOPOLOGY_ENDS[@]}"; do
		ip netns add "memreg-$end" || return
	done
	ip link add mr_owner netns memreg-owner type veth \
		peer name mr_peer netns memreg-peer || return
	for end in "${TOPOLOGY_ENDS[@]}"; do
		addresses_up "$end" || return
	done
}

# addresses_up END: nodad, as nobody else is there. IPv6's go with a link down.
addresses_up() {
	local ip=(ip -n "memreg-$1")
	"${ip[@]}" addr replace "${TOPOLOGY_IP4[$1]}/24" dev "mr_$1" &&
		"${ip[@]}" addr replace "${TOPOLOGY_IP6[$1]}/64" dev "mr_$1" nodad &&
		"${ip[@]}" link set lo up &&
		"${ip[@]}" link set "mr_$1" up
}

# rxe_up END
rxe_up() {
	modprobe rdma_rxe &&
		ip netns exec "memreg-$1" \
			rdma link add "rxe_$1" type rxe netdev "mr_$1"
}

# rxe_down END
rxe_down() {
	! rxe_there "$1" || rdma link delete "rxe_$1"
}

rxe_there() {
	ip netns exec "memreg-$1" rdma link show "rxe_$1/1" >/dev/null 2>&1
}

# rxe_ready END: it is active, and has the GIDs of both addresses. Its GSI QP,
# which carries the RDMA CM, is in error for good once a packet could not be
# sent, as when the link was down.
rxe_ready() {
	local gids=/sys/class/infiniband/rxe_$1/ports/1/gids n=${1/owner/1}
	n=${n/peer/2}
	ip netns exec "memreg-$1" rdma link show "rxe_$1/1" 2>/dev/null |
		grep -q 'state ACTIVE' &&
		ip netns exec "memreg-$1" rdma resource show qp link "rxe_$1" |
		grep -q 'type GSI state RTS' &&
		grep -qx "0000:0000:0000:0000:0000:ffff:c000:020$n" \
			"$gids"/[0-9] &&
		grep -qx "fd00:6d72:0000:0000:0000:0000:0000:000$n" \
			"$gids"/[0-9]
}

# wire_ready: each end hears the other, and knows its MAC address.
wire_ready() {
	ip netns exec memreg-peer ping -q -c 1 -W 1 192.0.2.1 &&
		ip netns exec memreg-peer ping -q -c 1 -W 1 fd00:6d72::1
} >/dev/null 2>&1

topology_ready() {
	rxe_ready owner && rxe_ready peer && wire_ready
}

topology_up() {
	local end
	module_load || return
	if topology_ready; then
		return
	fi
	topology_down
	wire_up || return
	for end in "${TOPOLOGY_ENDS[@]}"; do
		rxe_up "$end" || return
	done
	await 20 topology_ready
}

# topology_down: works on what is there of it.
topology_down() {
	local end
	for end in "${TOPOLOGY_ENDS[@]}"; do
		if ip netns pids "memreg-$end" >/dev/null 2>&1; then
			rxe_down "$end"
			ip netns delete "memreg-$end"
		fi
	done
	await 20 topology_gone
}

# A namespace goes some time after its name, and its interfaces with it.
topology_gone() {
	! rdma link show 2>/dev/null | grep -q 'link rxe_\(owner\|peer\)/'
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	case ${1:-} in
	up) topology_up ;;
	down) topology_down ;;
	*) sed -n '2,/^$/s/^# \?//p' "$0" >&2; exit 2 ;;
	esac
fi
