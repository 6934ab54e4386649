# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Functions that the scripts in checks/ share. Each of these scripts defines
#
#   check      look at the tree in the current directory, print each finding on
#              a line, and end with `clean_if "WHAT WAS LOOKED AT"`. OUT is a
#              directory to write to, KSRC the Linux source, KDIR the build tree
#              of a kernel.
#   plant_X    plant the error X in the tree in the current directory, and print
#              a regular expression that matches the finding. There may be
#              several.
#
# and ends with `lint "$@"`.

# sources FIND-EXPRESSION...: the matching files of the project, sorted.
sources() {
	find . \( -name .git -o -path ./build \) -prune -o \
		-type f \( "$@" \) -print | sed 's,^\./,,' | sort
}

kernel_sources() {
	sources -path './kernel/*.[ch]' -o -path './include/*.h' \
		-o -path './selftests/vm/adapter/*.[ch]'
}

user_sources() {
	sources -path './user/*.[ch]' -o -path './selftests/*.[ch]' |
		grep -vE '^selftests/(lint|vm/adapter)/'
}

# shell_scripts: files that begin like a shell script.
shell_scripts() {
	sources -type f | while read -r file; do
		head -n 1 "$file" | tr -d '\0' | grep -qE \
			'^#!.*[/ ](ba|da)?sh\b|^# shellcheck shell=' &&
			echo "$file"
	done
	true
}

# accepted CHECK: pass on the findings that the file `accepted` does not excuse.
accepted() {
	local check=$1 pattern
	pattern=$(sed -n "s/^$check: //p" "$LINT/accepted" | paste -sd '|')
	if [ -n "$pattern" ]; then
		grep -vE -- "$pattern" || true
	else
		cat
	fi
}

# Findings go through here: they are counted and shown.
FOUND=0
findings() {
	local line
	while IFS= read -r line; do
		echo "$line"
		FOUND=$((FOUND + 1))
	done
}

clean_if() {
	if [ "$FOUND" = 0 ]; then
		echo "$1"
	else
		echo "$FOUND lines of findings in $1"
		exit 1
	fi
}

# need TOOL...: a check without its tool has failed.
need() {
	local tool
	for tool; do
		command -v "$tool" >/dev/null || {
			echo "$tool is not installed"
			exit 2
		}
	done
}

lint() {
	case $1 in
	check)
		OUT=$3
		mkdir -p "$OUT"
		cd "$2" || exit
		check
		;;
	plants) declare -F | sed -n 's/^declare -f plant_//p' ;;
	plant) "plant_$2" ;;
	esac
}
