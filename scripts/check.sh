#!/usr/bin/env bash
# check.sh: all checks of the sources that do not run the program. Their results depend on the sources alone.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
. scripts/once.sh

unformatted=$(find . -name '*.go' -not -path '*/node_modules/*' -not -path './.cache/*' -print0 | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted by gofmt:\n%s\n' "$unformatted"
	status=1
fi
# Another clone may run its linters with the same cache.
GOLANGCI_LINT_CACHE=$TIERWAY_CACHE/golangci-lint scripts/quiet.sh "linters" \
	"$GOLANGCI_LINT" run --allow-parallel-runners ./... || status=1
ui=(web/ui scripts/npm.sh)
once scripts/quiet.sh "types of the admin UI" npm --prefix web/ui run check -- "${ui[@]}" || status=1
# The tests of the admin UI read constants of the Go sources.
once scripts/quiet.sh "tests of the admin UI" npm --prefix web/ui run --silent test -- "${ui[@]}" '*.go' || status=1
once scripts/quiet.sh "web/dist is fresh" scripts/ui.sh -- "${ui[@]}" web/dist scripts/ui.sh || status=1
once scripts/quiet.sh "types of the browser tests" npm --prefix e2e/browser run check -- "${ui[@]}" e2e/browser || status=1
exit "$status"
