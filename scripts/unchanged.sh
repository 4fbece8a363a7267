#!/usr/bin/env bash
# unchanged.sh NAME PATH…: prints the name of the file that marks a passed run of NAME with the content that the paths have. A
# path is a file, a folder, or a pattern of `git ls-files`. The file exists if such a run has passed on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
hash=$(git ls-files -z --cached --others --exclude-standard --deduplicate -- "$@" | sort -z |
	xargs -0 sh -c 'for f; do [ ! -f "$f" ] || sha256sum "$f"; done' sh | sha256sum | cut -c 1-20)
echo "$TIERWAY_CACHE/passed/$name-$hash"
