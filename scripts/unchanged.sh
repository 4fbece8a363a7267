#!/usr/bin/env bash
# unchanged.sh NAME PATH…: prints the name of the file that marks a passed run of NAME with the content that the paths
# have and with the installed Go, Node and Python. A path is a file, a folder, or a pattern of `git ls-files`. The file
# exists if such a run has passed on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
versions=$(go env GOVERSION; node --version; python3 --version)
hash=$({ echo "$versions"; git ls-files -z --cached --others --exclude-standard --deduplicate -- "$@" | sort -z |
	xargs -0 sh -c 'for f; do [ ! -f "$f" ] || sha256sum "$f"; done' sh; } | sha256sum | cut -c 1-20)
echo "${TIERWAY_CACHE:-$HOME/.cache/tierway}/passed/$name-$hash"
