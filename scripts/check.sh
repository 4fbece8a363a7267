#!/usr/bin/env bash
# check.sh: all checks of the sources that do not run the program.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

unformatted=$(find . -name '*.go' -not -path '*/node_modules/*' -not -path './.cache/*' -print0 | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted by gofmt:\n%s\n' "$unformatted"
	status=1
fi
for module in . tools e2e/openaigo; do
	scripts/quiet.sh "$module/go.mod is tidy" go -C "$module" mod tidy -diff || status=1
done
GOLANGCI_LINT_CACHE=$PWD/.cache/golangci-lint scripts/quiet.sh "linters" .cache/bin/golangci-lint run ./... || status=1
vulnerable=$(.cache/bin/govulncheck -tags nomsgpack ./... 2>&1) || {
	case $vulnerable in
	*"fetching vulnerabilities"*) echo "skipped: known vulnerabilities (their database cannot be reached)" ;;
	*)
		echo "$vulnerable"
		echo "FAILED: known vulnerabilities"
		status=1
		;;
	esac
}
scripts/quiet.sh "laws of the house" go test -tags nomsgpack -count=1 . || status=1
scripts/quiet.sh "generated docs are fresh" scripts/docs.sh || status=1
scripts/quiet.sh "types of the admin UI" npm --prefix web/ui run check || status=1
scripts/quiet.sh "types of the browser tests" npm --prefix e2e/browser run check || status=1
scripts/quiet.sh "web/dist is fresh" scripts/ui.sh || status=1
exit "$status"
