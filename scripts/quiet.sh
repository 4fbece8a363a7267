#!/usr/bin/env bash
# quiet.sh NAME COMMAND…: runs the command, prints its name and its result in one line, and
# prints its output only if it fails.
set -euo pipefail
name=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
printf '%s: ' "$name"
"$@" >"$log" 2>&1 </dev/null || status=$?
if [ "$status" -ne 0 ]; then
	echo FAILED
	cat "$log"
	echo "FAILED: $name ($(printf '%q ' "$@"))"
	exit "$status"
fi
echo "done (${SECONDS}s)"
