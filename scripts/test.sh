#!/usr/bin/env bash
# test.sh [soak]: runs all tests of the module and prints only failures. The last
# line has the numbers of passed and failed tests; a run without tests fails.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache/logs

export TIERWAY_BIN=$PWD/bin/tierway
export TIERWAY_PYTHON=$PWD/.cache/python/bin/python
passed=0
failed=0
skipped=0

# results KIND LOG: prints the lines of tests that ended with KIND, which is FAIL or SKIP. With FAIL it also
# prints those of tests that did not end, and lines outside of tests.
results() {
	awk -v kind="$1" '
		/^=== (RUN|CONT|NAME|PAUSE) / { test = $3; next }
		/^ *--- (PASS|SKIP|FAIL): / {
			if ($2 == kind ":") printf "%s%s\n", lines[$3], $0
			delete lines[$3]
			next
		}
		/^(ok  |\?   |PASS$)/ { test = ""; next }
		kind == "FAIL" && /^FAIL/ { for (name in lines) printf "%s", lines[name]; delete lines; test = "" }
		test != "" { lines[test] = lines[test] $0 "\n"; next }
		kind == "FAIL" { print }
		END { if (kind == "FAIL") for (name in lines) printf "%s", lines[name] }' "$2"
}

# step NAME COMMAND…: runs one `go test -v`. If it fails, the failures are printed.
step() {
	local name=$1 begin=$SECONDS status=0 before=$failed
	local log=.cache/logs/$name.log
	shift
	"$@" >"$log" 2>&1 </dev/null || status=$?
	passed=$((passed + $(grep -c '^--- PASS: ' "$log")))
	failed=$((failed + $(grep -c '^--- FAIL: ' "$log")))
	skipped=$((skipped + $(grep -c '^--- SKIP: ' "$log")))
	if [ "$status" -ne 0 ]; then
		# A failed build or a crashed process is not counted as a failed test.
		[ "$failed" -gt "$before" ] || failed=$((failed + 1))
		results FAIL "$log"
		echo "FAILED: $name, in full in $log"
	else
		results SKIP "$log"
		echo "done: $name ($((SECONDS - begin))s)"
	fi
}

# step_ui NAME COMMAND…: runs one `vitest run` that reports in TAP without nesting. If it fails, its output is
# printed.
step_ui() {
	local name=$1 begin=$SECONDS status=0 before=$failed
	local log=.cache/logs/$name.log
	shift
	"$@" >"$log" 2>&1 </dev/null || status=$?
	passed=$((passed + $(grep '^ok ' "$log" | grep -vc '# SKIP')))
	failed=$((failed + $(grep -c '^not ok ' "$log")))
	skipped=$((skipped + $(grep -c '^ok .*# SKIP' "$log")))
	if [ "$status" -ne 0 ]; then
		[ "$failed" -gt "$before" ] || failed=$((failed + 1))
		grep -v '^ok ' "$log"
		echo "FAILED: $name, in full in $log"
	else
		echo "done: $name ($((SECONDS - begin))s)"
	fi
}

if [ "${1:-}" = soak ]; then
	# In virtual time: loads under which no healthy worker may be ejected.
	step soak-sim env TIERWAY_WORLDS=all go test -tags nomsgpack -count=1 -v -timeout 30m -run 'EjectsNoWorker|KeepsItsWorkers|IsEjected' ./sim
	# One package at a time: the measurements would disturb each other on two cores.
	step soak env TIERWAY_LIVENESS=all go test -tags nomsgpack -count=1 -p 1 -v -timeout 40m ./e2e/...
else
	# Short soaks: their assertions hold after seconds, too.
	export TIERWAY_SOAK=${TIERWAY_SOAK:-2s}
	step vet go vet -tags nomsgpack ./...
	step_ui ui npm --prefix web/ui run --silent test -- --reporter=tap-flat
	# These packages rarely start a goroutine and take about eight times as long under
	# the race detector: only their tests that match raced run under it.
	# house_race_test.go checks both lists.
	norace='^tierway(/bench/classify|/config|/openai(/prompt|/tokens)?|/replay|/routing|/routing/routingtest|/sim)?$'
	raced='AtOnce|Concurren|Meanwhile|AFileIs|ContentCounts|OnlyRegularFiles|Keeps?TheLaws//Concurren'
	mapfile -t unraced < <(go list -tags nomsgpack ./... | grep -E "$norace")
	# The package that takes longest begins first.
	mapfile -t units < <(echo tierway/server &&
		go list -tags nomsgpack ./... | grep -v '/e2e' | grep -vE "$norace|^tierway/server$")
	step race-some go test -tags nomsgpack -race -v -timeout 10m -run "$raced" "${unraced[@]}"
	step no-race go test -tags nomsgpack -v -timeout 10m "${unraced[@]}"
	# Three at a time: some of them mostly wait for timers and servers.
	# The drift tests send one request at a time, for two minutes under the race detector: they run
	# without it.
	drift='AsExplainedUnder(RandomDrafts|TheDraft)$'
	step race go test -tags nomsgpack -race -p 3 -v -timeout 10m -skip "$drift" "${units[@]}"
	step drift go test -tags nomsgpack -v -timeout 10m -run "$drift" ./server
	# Compares the request reader with the strictest JSON reader of the standard library.
	step strict env GOEXPERIMENT=jsonv2 go test -tags nomsgpack -count=1 -v -run Strict ./openai
	# Packages that mostly wait for Redis, databases and SDKs run two at a time; packages that put load
	# on the machine, as browsers do, run alone. Parallel tests mostly wait for timeouts, so more of
	# them run than there are cores.
	patient='/e2e/(backends|docs|gateway|sdk|state)$'
	mapfile -t waiting < <(go list -tags nomsgpack ./e2e/... | grep -E "$patient")
	mapfile -t loading < <(go list -tags nomsgpack ./e2e/... | grep -vE "$patient|/e2e/browser$")
	step e2e-wait go test -tags nomsgpack -count=1 -p 2 -parallel 4 -v -timeout 10m "${waiting[@]}"
	step e2e-browser go test -tags nomsgpack -count=1 -parallel 2 -v -timeout 10m ./e2e/browser
	step e2e-load go test -tags nomsgpack -count=1 -p 1 -parallel 6 -v -timeout 10m "${loading[@]}"
fi

[ "$skipped" -eq 0 ] || echo "$skipped skipped"
if [ $((passed + failed)) -eq 0 ]; then
	echo "no test ran"
	failed=1
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
