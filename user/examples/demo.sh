#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# A stock verbs peer reads and writes a window that the owner then revokes.
#
# Run as root, in a machine whose RDMA you can do without for a minute (a guest
# of the test bench, say). Two network namespaces joined by a veth pair stand
# for two machines, with soft-RoCE on either end. Ends with 0 only if each step
# went as it should.
#
# `demo.sh cost` leaves out the story and prints what things cost; what follows
# is for the program that measures: see `cost --help`.
#
# MEMREG_BUILD: build directory; what is installed is used if it has nothing.

set -u

here=$(cd "$(dirname "$0")" && pwd)
build=${MEMREG_BUILD:-$here/../../build}
owner_ip=192.0.2.1 peer_ip=192.0.2.2 port=7471
loaded='' tmp='' answer='' said='' owner_pid='' peer_pid=''

die() {
	echo
	echo "demo: FAILED: $*" >&2
	exit 1
}

step() {
	echo
	echo "== $*"
}

# Wait until a command succeeds; for what has no event to wait for
until_true() {
	local what=$1 n
	shift
	for n in $(seq 100); do
		if "$@" >/dev/null 2>&1; then
			return 0
		fi
		sleep 0.1
	done
	die "$what: not within ${n} tenths of a second"
}

cleanup() {
	trap - EXIT
	# ends both, if they are still there
	exec 3>&- 5>&-
	[ -n "$peer_pid" ] && kill "$peer_pid" 2>/dev/null
	[ -n "$owner_pid" ] && kill "$owner_pid" 2>/dev/null
	wait
	# before their network interfaces: they would keep those for a while
	rdma link delete mr_peer 2>/dev/null
	rdma link delete mr_owner 2>/dev/null
	ip netns del memreg-peer 2>/dev/null
	ip netns del memreg-owner 2>/dev/null
	[ -n "$loaded" ] && "$memreg" unload
	[ -n "$tmp" ] && rm -rf "$tmp"
}

program() {
	if [ -x "$build/user/$1" ]; then
		echo "$build/user/$1"
	else
		command -v "$(basename "$1")"
	fi
}

has_gid() {
	grep -qi "$2" /sys/class/infiniband/"$1"/ports/1/gids/*
}

# The owner's lines as they come, until one holds the word that is waited for;
# they are in $said then
await_owner() {
	local line
	said=''
	while IFS= read -r -t 60 line <&4; do
		echo "  owner | $line"
		said+=$line$'\n'
		case $line in *"$1"*) return 0 ;; esac
	done
	die "the owner did not say '$1'"
}

tell_owner() {
	echo "  owner < $1"
	echo "$1" >&3
	await_owner "$2"
}

# Both texts are in the owner's memory, and nothing else
check_memory() {
	tell_owner "show 0 64" "end of show"
	[[ $said == *"|Hello from the o|"*"|wner............|"* ]] ||
		die "the owner's text is not there"
	[[ $said == *"|And hello from t|"*"|he peer.........|"* ]] ||
		die "the peer's text is not there"
}

# The peer says one line for each command; it is in $answer then
await_peer() {
	IFS= read -r -t 60 answer <&6 || die "the peer is silent"
	echo "  peer  | $answer"
	case $answer in
	*"$1"*) ;;
	*) die "the peer was to say '$1'" ;;
	esac
}

tell_peer() {
	echo "  peer  < $1"
	echo "$1" >&5
	await_peer "$2"
}

make_machines() {
	ip netns add memreg-owner && ip netns add memreg-peer &&
	ip link add mrowner netns memreg-owner type veth \
		peer name mrpeer netns memreg-peer &&
	ip -n memreg-owner addr add $owner_ip/24 dev mrowner &&
	ip -n memreg-peer addr add $peer_ip/24 dev mrpeer &&
	ip -n memreg-owner link set lo up &&
	ip -n memreg-peer link set lo up &&
	ip -n memreg-owner link set mrowner up &&
	ip -n memreg-peer link set mrpeer up
}

make_rxe() {
	ip netns exec memreg-owner "$memreg" load --rxe mrowner \
		--name mr_owner &&
	ip netns exec memreg-peer "$memreg" load --rxe mrpeer --name mr_peer
}

tell_story() {
	step "The owner registers 64 KiB and waits for peers"
	ip netns exec memreg-owner "$memreg" serve -d mr_owner -a $owner_ip -p $port \
		--size 64K <"$tmp/owner.in" >"$tmp/owner.out" &
	owner_pid=$!
	exec 3>"$tmp/owner.in" 4<"$tmp/owner.out"
	await_owner "serving 65536 bytes"
	tell_owner "set 0 Hello from the owner." "set 0"

	step "A stock peer (librdmacm and libibverbs only) connects: it gets a window"
	ip netns exec memreg-peer "$verbs_peer" --interactive $owner_ip $port \
		<"$tmp/peer.in" >"$tmp/peer.out" &
	peer_pid=$!
	exec 5>"$tmp/peer.in" 6<"$tmp/peer.out"
	await_peer "connected iova="
	old_rkey=${answer##*rkey=} old_rkey=${old_rkey%% *}
	await_owner "connected from $peer_ip"

	step "It reads what the owner wrote, and writes"
	tell_peer "read 0 21" "status=success crc32=0x$(printf 'Hello from the owner.' |
		gzip -c | tail -c8 | head -c4 | od -An -tx4 | tr -d ' ')"
	# "And hello from the peer."
	tell_peer "writehex 32 416e642068656c6c6f2066726f6d2074686520706565722e" \
		"status=success"
	tell_peer "write 60000 5536 0x55" "status=success"
	check_memory

	step "The objects of all users"
	"$memreg" list || die "no list"

	step "The owner revokes the window: from here on the key is dead"
	tell_owner "revoke all" "revoked"

	step "The peer tries again: refused by the RDMA device, memory untouched"
	tell_peer "write 0 64 0x58" "status=remote-access-error"
	tell_peer "expect access" "result=match"
	check_memory

	step "It comes back and gets a new window; the key of the old one stays dead"
	tell_peer "reconnect" "connected iova="
	await_owner "connected from $peer_ip"
	tell_peer "read 32 24" "status=success"
	tell_peer "rkey $old_rkey" "rkey=$old_rkey"
	tell_peer "read 32 24" "status=remote-access-error"
	tell_peer "expect access" "result=match"
	tell_peer "quit" "quit"
	wait "$peer_pid" || die "the peer ended badly"
	peer_pid=
	await_owner "gone after"
	tell_owner "quit" "end"
	wait "$owner_pid" || die "the owner ended badly"
	owner_pid=
}

memreg=$(program tool/memreg) || die "there is no memreg; run make"
verbs_peer=$(program peer/verbs_peer) || die "there is no verbs_peer"
cost=$(program examples/cost) || die "there is no cost"
module=$build/kernel-$(uname -r)/ib_memreg.ko
[ "$(id -u)" = 0 ] || die "this needs root"

trap cleanup EXIT
trap 'exit 1' INT TERM
tmp=$(mktemp -d) || die "no temporary directory"
mkfifo "$tmp"/{owner,peer}.{in,out} || die "no pipes"

step "Two machines: network namespaces with soft-RoCE, and the module"
[ -d /sys/module/ib_memreg ] || loaded=yes
if [ -f "$module" ]; then
	"$memreg" load --module "$module" || die "the module can't be loaded"
else
	"$memreg" load || die "the module can't be loaded"
fi
modprobe -a ib_uverbs rdma_ucm || die "no verbs from user space"
make_machines || die "no network"
make_rxe || die "no soft-RoCE"
until_true "address of mr_owner" has_gid mr_owner c000:0201
until_true "address of mr_peer" has_gid mr_peer c000:0202
until_true "wire" ip netns exec memreg-peer ping -q -c 1 -W 1 $owner_ip
ip netns exec memreg-owner "$memreg" caps -d mr_owner || die "no capabilities"

if [ "${1:-}" = cost ]; then
	shift
else
	tell_story
	set --
fi

step "What it costs, beside ibv_reg_mr and ibv_dereg_mr in the same run"
ip netns exec memreg-owner "$cost" -d mr_owner "$@" || die "no cost"

step "Nothing is left"
[ "$("$memreg" list --json)" = "[]" ] || die "objects are left"
"$memreg" unload || die "the module does not unload"
loaded=
echo "  all closed, the module is unloaded"
echo
echo "demo: PASSED"
