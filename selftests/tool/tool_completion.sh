#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Completion for bash: subcommands, the options that each has, and the values of
# those that have a list of them.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh
# shellcheck source-path=SCRIPTDIR source=../../user/completion/memreg
. ../user/completion/memreg

trap 'rm -f "$SAID"' EXIT

# offers EXPECTED WORD...: compare the completions of the last, incomplete word.
offers() {
	local expected=$1 got
	shift
	COMP_WORDS=(memreg "$@")
	COMP_CWORD=$#
	_memreg
	got=${COMPREPLY[*]}
	[ "$got" = "$expected" ] || {
		echo "memreg $*: $got" >>"$SAID"
		return 1
	}
}

subcommands() {
	offers "peek" pee && offers "blk blkd" blk && offers "serve" serv &&
		offers "--help --version" --
}

# The help, the completion and getopt(3) know the same options.
options() {
	local sub option
	for sub in $(_memreg_subcommands); do
		for option in $(_memreg_options "$sub"); do
			memreg "$sub" "$option=" --help 2>&1 |
				grep -q 'there is no option' && {
				echo "$sub $option" >>"$SAID"
				return 1
			}
		done
	done
	offers "--timeout" ping --ti && offers "--interval" stat --int &&
		offers "--read-only --revoke-after" serve --re
}

values() {
	offers "read" bw --op r && offers "type2b" ping --keys type2 &&
		offers "read read,write read,write,atomic" serve -A re &&
		offers "rxe_owner" caps -d rxe_o && offers "mr monitor" list --type m &&
		offers "attach" blk a && offers "pool" bench p &&
		offers "--pool" serve --poo && offers "--export" serve --ex &&
		offers "--batch" bench pool --b
}

files() {
	offers "tool/tool_completion.sh" serve --file tool/tool_c &&
		offers "tool/tool_completion.sh" blkd tool/tool_c
}

check subcommands
check options
check values
check files
exit "$FAILED"
