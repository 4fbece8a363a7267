#!/usr/bin/env bash
# test.sh [soak]: runs the tests of the gate, or all tests in their long form. It prints one line per step, failures and
# unexpected skips. The last line has the numbers of passed and failed tests; a run without tests fails.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/once.sh
logs=${TIERWAY_LOGS:-.cache/logs}
mkdir -p "$logs"
passed=0
failed=0
skipped=0

# results KIND LOG: prints the lines of tests that ended with KIND, which is FAIL or SKIP. SKIP leaves out tests that
# need `make soak`. FAIL also prints the lines of unfinished tests and lines outside of tests.
results() {
	awk -v kind="$1" '
		/^=== (RUN|CONT|NAME|PAUSE) / { test = $3; next }
		/^ *--- (PASS|SKIP|FAIL): / {
			if ($2 == kind ":" && (kind == "FAIL" || lines[$3] !~ /run make soak/)) printf "%s%s\n", lines[$3], $0
			delete lines[$3]
			next
		}
		/^(ok  |\?   |PASS$)/ { test = ""; next }
		kind == "FAIL" && /^FAIL/ { for (name in lines) printf "%s", lines[name]; delete lines; test = "" }
		test != "" { lines[test] = lines[test] $0 "\n"; next }
		kind == "FAIL" { print }
		END { if (kind == "FAIL") for (name in lines) printf "%s", lines[name] }' "$2"
}

# step NAME COMMAND…: runs one command, mostly a `go test -v`. If it fails, the failures are printed.
step() {
	local name=$1 status=0 before=$failed wall used
	local log=$logs/$name.log cost=$logs/$name.time
	shift
	printf '%s: ' "$name"
	{ TIMEFORMAT='%R %U %S' && time "$@" >"$log" 2>&1 </dev/null; } 2>"$cost" || status=$?
	read -r wall used < <(awk 'END { printf "%d %d\n", $1, $2 + $3 }' "$cost")
	passed=$((passed + $(grep -c '^--- PASS: ' "$log")))
	failed=$((failed + $(grep -c '^--- FAIL: ' "$log")))
	skipped=$((skipped + $(grep -c '^--- SKIP: ' "$log")))
	if [ "$status" -ne 0 ]; then
		# A failed build or a crashed process is not counted as a failed test.
		[ "$failed" -gt "$before" ] || failed=$((failed + 1))
		echo FAILED
		results FAIL "$log"
		echo "FAILED: $name, in full in $log"
		return 1
	fi
	echo "done (${wall}s, ${used}s of CPU)"
	results SKIP "$log"
}

# smoke NAME COMMAND…: a step whose tests must not be skipped, because no other step runs them.
smoke() {
	step "$@" || return
	! grep '^ *--- SKIP: ' "$logs/$1.log" || { failed=$((failed + 1)) && echo "FAILED: $1 skips tests" && return 1; }
}

tests=(go test -vet=off -v -timeout 20m)
# Packages of real time run the binary with real servers. The gate runs their smoke tests only.
real='/e2e/(backends|browser|docs|events|gateway|kvaware|loopback|sdk|state|traces|watch)$'
# Packages whose goroutines share memory, and that are cheap to build for the race detector. `make soak` runs all
# packages under it.
raced=(./breaker ./decisions ./engines/zmq ./http1 ./memnet/... ./queue ./spool ./workers/...)
# All other packages except those of real time. The package that takes longest begins first.
all=$(go list ./...) && others=$(go list "${raced[@]}") || exit
mapfile -t virtual < <(echo tierway/server && grep -vE "$real|^tierway/server$" <<<"$all" | grep -vxF "$others")
virtual+=(tierway/http1) # its builds for the race detector use sockets in another way
mapfile -t smoked < <(grep -E "$real|/e2e/chaos$" <<<"$all" | grep -vE '/e2e/(browser|sdk)$')

if [ "${1:-}" = soak ]; then
	export TIERWAY_SEED=${TIERWAY_SEED:-$((RANDOM * 32768 + RANDOM + 2))}
	echo "seed: TIERWAY_SEED=$TIERWAY_SEED"
	tests=(go test -vet=off -v -timeout 90m -count=1)
	step tidy bash -ec 'for module in . tools e2e/openaigo; do go -C "$module" mod tidy -diff; done'
	step vulnerabilities "$GOVULNCHECK" ./...
	step race env -u TIERWAY_SOAK CGO_ENABLED=1 "${tests[@]}" -race "${virtual[@]}" "${raced[@]}"
	# Compares the request reader with the strictest JSON reader of the standard library.
	step strict env GOEXPERIMENT=jsonv2 "${tests[@]}" -run Strict ./openai
	# Without http1's server in front of net/http's.
	step nethttp env -u TIERWAY_SOAK TIERWAY_NET_HTTP=1 "${tests[@]}" ./server
	# Runs random tests with their full samples.
	step samples "${tests[@]}" ./replay ./routing ./server ./sim ./tierscore/training
	# One package at a time: the measurements would disturb each other on two cores.
	step binary env TIERWAY_LIVENESS=all TIERWAY_BIN="$PWD/bin/tested/tierway" "${tests[@]}" -p 1 ./store ./e2e/...
else
	# These variables of the caller would change the tests.
	unset TIERWAY_SOAK TIERWAY_BIN TIERWAY_SEED TIERWAY_NET_HTTP TIERWAY_LIVENESS TIERWAY_TRACE
	step virtual "${tests[@]}" -skip '^TestSmoke' "${virtual[@]}"
	step race env CGO_ENABLED=1 "${tests[@]}" -race "${raced[@]}"
	export TIERWAY_BIN=$PWD/bin/tested/tierway
	# Smoke tests mostly wait, so more of them run than there are processors.
	smoke smoke "${tests[@]}" -p 2 -parallel 4 -run '^TestSmoke' "${smoked[@]}" ./store
	inputs=(. ':!docs' ':!*.md')
	once smoke sdk "${tests[@]}" -run '^TestSmoke' ./e2e/sdk -- "${inputs[@]}"
	once smoke browser "${tests[@]}" -run '^TestSmoke' ./e2e/browser -- "${inputs[@]}"
fi

[ "$skipped" -eq 0 ] || echo "$skipped skipped"
if [ $((passed + failed)) -eq 0 ]; then
	echo "no test ran"
	failed=1
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
