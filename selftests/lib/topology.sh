#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two network namespaces, a wire between them, and soft-RoCE on either end.
# Usage: topology.sh up|down, or source it for its functions.
#
#	memreg-owner: rxe_owner on mr_owner, 192.0.2.1 and fd00:6d72::1
#	memreg-peer:  rxe_peer on mr_peer, 192.0.2.2 and fd00:6d72::2
#
# MEMREG_ADAPTER has soft-RoCE be an adapter that does DMA, with what follows as
# parameters of the module: see selftests/vm/adapter/rxe_dma.c.
#
#	strict: it keeps the promises of the specification
#	weak:   its invalidations are those of soft-RoCE, which takes its place on
#	        kernels that devices cannot have DMA operations of their own on
#
# It needs the rdma subsystem's netns mode to be shared, which is the default:
# a device is then seen from every namespace, and works in that of its netdev.
#
# Starting a process takes a second on a debug kernel in an emulator, so what
# the shell can do by itself it does.

TOPOLOGY_ENDS=(owner peer)
TOPOLOGY_TREE=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
INFINIBAND=/sys/class/infiniband
ADAPTER=/sys/module/rdma_rxe/parameters

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

# rxe_load: soft-RoCE, or the adapter that it is made to be.
rxe_load() {
	local words built
	[ ! -d /sys/module/rdma_rxe ] || return 0
	read -ra words <<<"${MEMREG_ADAPTER:-}"
	case ${words[0]:-} in
	'') rxe_load_patched; return ;;
	strict) words[0]=strict=1 ;;
	weak) words[0]=strict=0 ;;
	*) echo "MEMREG_ADAPTER: strict or weak" >&2; return 1 ;;
	esac
	if ! built=$(adapter_module); then
		[ "${words[0]}" = strict=0 ] && rxe_load_patched
		return
	fi
	rxe_insert "$built" "${words[@]}"
}

# rxe_load_patched: the one that the bench has built from this tree's patches, as
# another tree's may be installed; or the kernel's own.
rxe_load_patched() {
	local built
	built=$(rxe_dir)/rdma_rxe.ko
	if [ -e "$built" ]; then
		rxe_insert "$built"
	else
		modprobe rdma_rxe
	fi
}

rxe_insert() {
	modprobe -a ib_uverbs udp_tunnel ip6_udp_tunnel && insmod "$@"
}

rxe_dir() {
	echo "/usr/src/rxe-$(uname -r)-$(rxe_sum)"
}

# adapter_module: the bench builds it with soft-RoCE.
adapter_module() {
	local name
	name=$(rxe_dir)/adapter/rdma_rxe.ko
	[ -e "$name" ] || { echo "no adapter: $name" >&2; return 1; }
	echo "$name"
}

# rxe_sum: of what the bench makes of the kernel's own soft-RoCE.
rxe_sum() {
	cat "$TOPOLOGY_TREE"/selftests/vm/{patches,adapter}/* | sha256sum |
		cut -c1-12
}

# adapter_note: what the adapter has mapped for itself, and its faults so far.
adapter_note() {
	[ ! -e $ADAPTER/faults ] ||
		cat $ADAPTER/faults $ADAPTER/mapped >/run/memreg-adapter
}

# adapter_clean: is that all, if there is one?
adapter_clean() {
	local faults mapped now
	[ -e $ADAPTER/faults ] || return 0
	{ read -r faults; read -r mapped; } </run/memreg-adapter
	read -r now <$ADAPTER/faults
	((now <= faults)) || return
	read -r now <$ADAPTER/mapped
	((now <= mapped))
}

# adapter_show: say what is not clean, once.
adapter_show() {
	grep . $ADAPTER/faults $ADAPTER/mapped /run/memreg-adapter
	adapter_note
}

# topology_device WORDS: set the topology up with another MEMREG_ADAPTER.
topology_device() {
	local clean=0
	[ "$1" != "${MEMREG_ADAPTER:-}" ] || return 0
	await 30 adapter_clean || { adapter_show >&2; clean=1; }
	[ ! -d /sys/module/ib_memreg ] || rmmod ib_memreg || return
	topology_down || return
	[ ! -d /sys/module/rdma_rxe ] || rmmod rdma_rxe || return
	export MEMREG_ADAPTER=$1
	topology_up && return $clean
}

# on_adapter WORDS PROGRAM...: run a test on another device, if there is one.
on_adapter() {
	local was=${MEMREG_ADAPTER:-} status=0
	adapter_module >/dev/null || return 4
	topology_device "$1" || return 1
	shift
	nsenter --net=/run/netns/memreg-owner "$@" || status=$?
	topology_device "$was" || status=1
	return $status
}

# rxe_up END
rxe_up() {
	rxe_load || return
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
	if ! topology_ready; then
		topology_down
		wire_up && rxe_up owner && rxe_up peer &&
			await 60 topology_ready || return
	fi
	adapter_note
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
