#!/usr/bin/env bash
# fuzz.sh: runs every fuzz target of the module for FUZZTIME, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=$(grep -rEo --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | sed 's/:func / /')
[ -n "$targets" ] || { echo "no fuzz target was found"; exit 1; }

# onlyTimeEnded succeeds if a run failed only because its time ended in the middle of an
# input. go test reports that as a failure without a failing input.
onlyTimeEnded() {
	grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input written' "$log"
}

n=0
while read -r file name; do
	# encoding/json/v2, the strictest JSON reader of the standard library, is an experiment.
	experiment=$(grep -qs '^//go:build goexperiment.jsonv2' "$file" && echo jsonv2 || true)
	if ! GOEXPERIMENT=$experiment go test -tags nomsgpack -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" "$(dirname "$file")" >"$log" 2>&1 </dev/null && ! onlyTimeEnded; then
		cat "$log"
		echo "FAILED: $name in $(dirname "$file")"
		exit 1
	fi
	if grep -q 'no fuzz tests to fuzz' "$log"; then
		echo "FAILED: $name in $(dirname "$file") did not run"
		exit 1
	fi
	echo "passed: $name in $(dirname "$file")"
	n=$((n + 1))
done <<<"$targets"
echo "$n fuzz targets passed"
