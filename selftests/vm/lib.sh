# shellcheck shell=bash
# Shared by the scripts in this directory: where things are, and how to say so.

SUITE=trixie
# To be raised when `setup` makes the same packages into another directory.
ROOT_FORMAT=1
DEBUG_FORMAT=1

BENCH=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
TREE=$(git -C "$BENCH" rev-parse --show-toplevel 2>/dev/null ||
	realpath "$BENCH/../..")
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/memreg
SELF=${0##*/}

say() { printf '%s: %s\n' "$SELF" "$*" >&2; }

die() {
	say "$@"
	exit 1
}

# The Debian version of the kernel, which `setup` decides once per cache.
kernel_version() { cat "$CACHE/kernel-version"; }

# The name of a directory of the cache ends in the hash of what it is made
# from, so that trees with different needs share one cache.
hash_of() { sha256sum | cut -c1-12; }

root_dir() {
	echo "$CACHE/root-$({
		echo "$ROOT_FORMAT $SUITE"
		cat "$CACHE/kernel-version" "$BENCH/packages"
	} | hash_of)"
}

ksrc_dir() { echo "$CACHE/linux-$(kernel_version | tr '~+' '--')"; }

# configs KERNEL: what a kernel of our own is configured by; the last one counts.
configs() {
	echo "$BENCH/debug.config"
	[ "$1" = debug ] || echo "$BENCH/$1.config"
}

# built_dir KERNEL: where it is built.
built_dir() {
	local files
	mapfile -t files < <(configs "$1")
	echo "$CACHE/$1-$({
		echo "$DEBUG_FORMAT"
		cat "$CACHE/kernel-version" "$BENCH/sanitized" "${files[@]}"
	} | hash_of)"
}

programs() { echo "$CACHE/programs-$(cat "$BENCH"/*.c | hash_of)"; }

# image KERNEL: the stock one without its compression, which takes seconds to
# undo in an emulator. KASAN cannot be started that way: ours have a fast
# compression instead.
image() {
	case $1 in
	stock) echo "$(root_dir)/boot/vmlinux" ;;
	trixie) echo "$(root_dir)/boot/vmlinux-trixie" ;;
	debug | faults | kcsan) echo "$(built_dir "$1")/bzImage" ;;
	*) no_kernel "$1" ;;
	esac
}

no_kernel() {
	die "no guest kernel is called '$1': take stock, faults, debug, kcsan or trixie"
}

# release KERNEL: what `uname -r` says in that guest.
release() {
	case $1 in
	stock) readlink "$(root_dir)/vmlinuz" | sed 's/.*vmlinuz-//' ;;
	debug | faults | kcsan)
		cat "$(built_dir "$1")/build/include/config/kernel.release" ;;
	trixie) readlink "$(oldest_dir)" | sed 's/^linux-headers-//' ;;
	*) no_kernel "$1" ;;
	esac
}

# kdir KERNEL: the build tree for modules, as named inside the root directory.
kdir() { echo "/lib/modules/$(release "$1")/build"; }

# rxe_dir KERNEL: where its soft-RoCE was built; lib/topology.sh looks there, too.
rxe_dir() {
	echo "$(root_dir)/usr/src/rxe-$(release "$1")-$(cat "$BENCH"/patches/* \
		"$BENCH"/adapter/* | hash_of)"
}

# oldest_dir: the build tree of the oldest kernel that the module is built for.
oldest_dir() { echo "$(root_dir)/usr/src/oldest"; }

# What packages are built with, by debian/control.
deb_packages() {
	echo build-essential
	sed -n '/^Build-Depends:/,/^[A-Z]/s/^ \([a-z][^ ,]*\).*/\1/p' \
		"$TREE/debian/control" |
		sed 's/^debhelper-compat$/debhelper/; s/^dh-sequence-/dh-/'
}

# What makes HTML of Documentation/ and of the man pages.
docs_packages() { printf '%s\n' graphviz mandoc python3-sphinx; }

# What README.md has one install, and what packages depend on.
clean_packages() {
	printf '%s\n' dkms libfabric1 linux-image-amd64
	sed -n 's/^sudo apt install \([a-z].*\)/\1/p' "$TREE/README.md" |
		tr ' ' '\n' | grep -v /
}

deb_dir() {
	echo "$CACHE/deb-$({ echo "$ROOT_FORMAT $SUITE"; deb_packages; } |
		hash_of)"
}

docs_dir() {
	echo "$CACHE/docs-$({ echo "$ROOT_FORMAT $SUITE"; docs_packages; } |
		hash_of)"
}

# clean_dir: with another name when the suite has another kernel.
clean_dir() {
	echo "$CACHE/clean-$({
		echo "$ROOT_FORMAT $SUITE"
		cat "$CACHE/kernel-version"
		clean_packages
	} | hash_of)"
}

# start_dir SHARE...: the caller's directory if it is below one of those.
start_dir() {
	local dir
	for dir; do
		case $(pwd -P)/ in
		"$dir"/*) pwd -P; return ;;
		esac
	done
	echo "$TREE"
}
