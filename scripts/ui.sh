#!/usr/bin/env bash
# ui.sh: compares web/dist, which the binary embeds, with a build of web/ui byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npm --prefix web/ui run --silent build -- --outDir "$built" --emptyOutDir
diff -rq web/dist "$built" || {
	echo "web/dist differs from the build of web/ui: run make ui"
	exit 1
}
