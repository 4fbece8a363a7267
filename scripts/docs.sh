#!/usr/bin/env bash
# docs.sh: compares the generated docs with the code. With UPDATE_DOCS=1 it writes them.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t packages < <(grep -rl --include='*_test.go' --exclude-dir=node_modules '^func Test.*DocIsGenerated' . |
	xargs -n 1 dirname | sort -u)
go test -tags nomsgpack -count=1 -run DocIsGenerated "${packages[@]}"
