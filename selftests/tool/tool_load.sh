#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg load where a module is loaded already: the same one, another one, or
# with parameters; and what memreg --version shows of it.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

LOADED=/sys/module/ib_memreg
BUILT=$TOPOLOGY_TREE/build/kernel-$(uname -r)/ib_memreg.ko
FILES=$(mktemp -d)
trap 'rm -rf "$SAID" "$SAID.now" "$FILES"' EXIT

# silent COMMAND...: it succeeds and prints nothing.
silent() {
	"$@" >>"$SAID" 2>&1 && [ ! -s "$SAID" ]
}

# another FILE: a module of the same name from other sources.
another() {
	local sum
	sum=$(<"$LOADED/srcversion")
	mkdir -p "${1%/*}"
	sed "s/srcversion=$sum/srcversion=${sum//[0-9]/7}/" "$BUILT" >"$1" &&
		! cmp -s "$BUILT" "$1"
}

same_file_is_no_error() {
	silent memreg load && silent memreg load --module "$BUILT"
}

another_file_is_refused() {
	another "$FILES/ib_memreg.ko" &&
		says 1 "is loaded already, and $FILES/ib_memreg.ko is .*srcversion.*; .memreg unload. first" \
			memreg load --module "$FILES/ib_memreg.ko" &&
		says 1 'No such file' memreg load --module "$FILES/none.ko" &&
		echo text >"$FILES/text.ko" &&
		says 1 'no module that can be read' \
			memreg load --module "$FILES/text.ko" &&
		[ -d "$LOADED" ]
}

# In a mount namespace the kernel has this module alone.
another_installed_one_is_reported() {
	another "$FILES/updates/ib_memreg.ko" || return
	# shellcheck disable=SC2016 # variables of the inner shell
	says 0 'is loaded, and .* is installed, which .memreg unload. and .memreg load. bring' \
		unshare --mount bash -c '
			dir=/lib/modules/$(uname -r)
			mount -t tmpfs none "$dir" && cp -r "$1" "$dir" &&
				depmod && memreg load' - "$FILES/updates"
}

parameters_need_a_module_that_is_not_loaded() {
	says 1 'gets parameters when it is loaded; .memreg unload. first' \
		memreg load dyndbg=-p && memreg unload && [ ! -d "$LOADED" ] &&
		memreg load --module "$BUILT" dyndbg=-p && [ -d "$LOADED" ]
}

version_shows_what_is_loaded() {
	says 0 "^ib_memreg $(<"$LOADED/version") (srcversion $(<"$LOADED/srcversion")) is loaded\$" \
		memreg --version && memreg unload &&
		says 0 '^ib_memreg is not loaded$' memreg --version
}

topology_up || exit
if [ ! -e "$BUILT" ]; then
	echo "ok 1 # SKIP no $BUILT"
	exit 4
fi
check same_file_is_no_error
check another_file_is_refused
check another_installed_one_is_reported
check parameters_need_a_module_that_is_not_loaded
check version_shows_what_is_loaded
exit "$FAILED"
