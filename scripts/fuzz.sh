#!/usr/bin/env bash
# fuzz.sh: every fuzz target of the module for FUZZTIME, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
targets=$(grep -rEo --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | sed 's/:func / /')
[ -n "$targets" ] || { echo "no fuzz target was found"; exit 1; }
n=0
while read -r file name; do
	scripts/quiet.sh "$name in $(dirname "$file")" \
		go test -tags nomsgpack -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" "$(dirname "$file")"
	n=$((n + 1))
done <<<"$targets"
echo "$n fuzz targets held"
