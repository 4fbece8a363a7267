#!/usr/bin/env bash
# once.sh defines the function `once`, which skips a step that has succeeded with the same inputs. Scripts source the
# file.
set -uo pipefail

# once RUN NAME COMMAND… -- PATH…: calls `RUN NAME COMMAND…` unless the command has succeeded on this machine with the
# present content of the paths and the installed Go, Node and Python. A path is a file, a folder, or a pattern of
# `git ls-files`.
once() {
	local run=$1 name=$2 command=() mark hash
	shift 2
	while [ "$1" != -- ]; do
		command+=("$1")
		shift
	done
	shift
	# Without git the inputs cannot be compared, so the command runs.
	hash=$({ printf '%s\n' "${command[@]}" && go env GOVERSION GOFLAGS && node --version && python3 --version &&
		{ "${CHROMIUM:-chromium}" --version 2>/dev/null || true; } &&
		git ls-files -z --cached --others --exclude-standard --deduplicate -- "$@" | sort -z |
		xargs -0 sh -c 'for f; do [ ! -f "$f" ] || sha256sum "$f"; done' sh; } | sha256sum | cut -c 1-20) ||
		{ "$run" "$name" "${command[@]}"; return; }
	mark=${TIERWAY_CACHE:-$HOME/.cache/tierway}/passed/${name//[ \/]/-}-$hash
	if [ -e "$mark" ]; then
		echo "$name: unchanged"
		return
	fi
	"$run" "$name" "${command[@]}" || return
	mkdir -p "${mark%/*}"
	touch "$mark"
}
