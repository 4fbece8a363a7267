#!/usr/bin/env bash
# check.sh: all checks of the sources that do not run the program. What they find depends on the sources alone.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

# once NAME COMMAND… -- PATH…: runs the command, unless it has passed with the same content of the paths.
once() {
	local name=$1 command=() mark
	shift
	while [ "$1" != -- ]; do
		command+=("$1")
		shift
	done
	mark=$(scripts/unchanged.sh "${name//[ \/]/-}" "${@:2}") || mark=
	if [ -n "$mark" ] && [ -e "$mark" ]; then
		echo "unchanged: $name"
	elif scripts/quiet.sh "$name" "${command[@]}"; then
		[ -z "$mark" ] || { mkdir -p "${mark%/*}" && touch "$mark"; }
	else
		status=1
	fi
}

unformatted=$(find . -name '*.go' -not -path '*/node_modules/*' -not -path './.cache/*' -print0 | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted by gofmt:\n%s\n' "$unformatted"
	status=1
fi
# Another clone may run its linters with the same cache.
GOLANGCI_LINT_CACHE=$TIERWAY_CACHE/golangci-lint scripts/quiet.sh "linters" \
	"$GOLANGCI_LINT" run --allow-parallel-runners ./... || status=1
ui=(web/ui scripts/npm.sh)
once "types of the admin UI" npm --prefix web/ui run check -- "${ui[@]}"
# They read constants of the Go sources.
once "tests of the admin UI" npm --prefix web/ui run --silent test -- "${ui[@]}" '*.go'
once "web/dist is fresh" scripts/ui.sh -- "${ui[@]}" web/dist scripts/ui.sh
once "types of the browser tests" npm --prefix e2e/browser run check -- "${ui[@]}" e2e/browser
exit "$status"
