#!/usr/bin/env bash
# stress.sh [PACKAGE…]: runs the tests of the gate three times on one processor, and three times beside twice as many
# busy processes as the machine has processors. With packages, it runs their tests 20 times in each of the two ways.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
busy=()
unset TIERWAY_BIN TIERWAY_SOAK
fresh=$(mktemp -d)
trap '[ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"; rm -rf "$fresh"' EXIT

# run NAME COMMAND…: runs the command, and prints its failures and how it ended.
run() {
	local name=$1 begin=$SECONDS status=0
	shift
	TIERWAY_CACHE=$(mktemp -d -p "$fresh") TIERWAY_LOGS=.cache/logs/${name// /-} "$@" || status=$?
	[ "$status" -eq 0 ] || failed=$((failed + 1))
	echo "$name: exit status $status after $((SECONDS - begin))s"
}

if [ $# -eq 0 ]; then
	runs=3
	# No result of an earlier run counts.
	export GOFLAGS="$GOFLAGS -count=1"
	tests=(scripts/test.sh)
else
	runs=1
	export TIERWAY_BIN=$PWD/bin/tested/tierway
	tests=(go test -vet=off -count=20 -timeout 600m "$@")
fi
for i in $(seq "$runs"); do run "one processor, run $i" env GOMAXPROCS=1 "${tests[@]}"; done
for _ in $(seq $((2 * $(nproc)))); do
	yes >/dev/null &
	busy+=($!)
done
for i in $(seq "$runs"); do run "beside ${#busy[@]} busy processes, run $i" "${tests[@]}"; done
echo "$failed runs failed"
[ "$failed" -eq 0 ]
