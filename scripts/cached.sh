#!/usr/bin/env bash
# cached.sh DIR COMMAND…: runs a command that fills DIR, unless an earlier run has completed it. Clones share DIR,
# so one run at a time works on it.
set -euo pipefail
dir=$1
shift
[ ! -e "$dir/.complete" ] || exit 0
mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9
[ ! -e "$dir/.complete" ] || exit 0
rm -rf "$dir"
mkdir -p "$dir"
"$@"
touch "$dir/.complete"
