# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Where the tests are: in folders by subject, a script or a program each.

declare -A SOURCES=()

# find_sources SELFTESTS: fill SOURCES, in which a test of this name has its script or
# the source of its program. No process is started: each takes long in a guest.
find_sources() {
	local file name
	for file in "$1"/*/*.c "$1"/*/*.sh; do
		case ${file#"$1/"} in
		bench/* | caches/* | lib/* | lint/* | vm/*) continue ;;
		esac
		name=${file##*/}
		# shellcheck disable=SC2034 # for those that source this file
		SOURCES[${name%.*}]=$file
	done
}
