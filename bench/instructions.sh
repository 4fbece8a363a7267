#!/usr/bin/env bash
# instructions.sh COMMIT [BENCHMARK]: counts the instructions that the gateway executes in user space for one request,
# at COMMIT and in the working tree. The counts hardly depend on the load of the machine. It needs valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:?BASE is missing: write make bench-instructions BASE=COMMIT} bench=${2:-'BenchmarkChat$/400B$'}
few=1000 many=5000 # requests of the two runs; the difference leaves out the start
command -v valgrind >/dev/null || { echo "valgrind is missing: apt-get install valgrind" >&2; exit 1; }
work=$(mktemp -d)
trap 'git worktree remove --force "$work/base" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"

# count DIRECTORY: prints the instructions of a request, those of Tierway's own code, and its allocations.
count() {
	(cd "$1" && go test -vet=off -c -o "$work/test" ./server)
	for n in $few $many; do
		(cd "$1/server" && GOMAXPROCS=1 GOGC=off valgrind --tool=cachegrind --cache-sim=no \
			--cachegrind-out-file="$work/$n" "$work/test" -test.run '^$' -test.bench "$bench" -test.benchmem \
			-test.benchtime "${n}x" >"$work/out" 2>"$work/err") || { cat "$work/out" "$work/err" >&2; return 1; }
	done
	awk -v few=$few -v many=$many '
		/^fn=/ { own = $0 ~ /^fn=tierway/ }
		/^[0-9]/ { sign = FILENAME ~ /\/'$few'$/ ? -1 : 1; all += sign * $2; if (own) mine += sign * $2 }
		END { printf "%d instructions, %d of them in own code", all / (many - few), mine / (many - few) }' \
		"$work/$few" "$work/$many"
	awk '/allocs\/op/ { printf ", %d allocations\n", $(NF - 1) }' "$work/out"
}

echo "$base: $(count "$work/base")"
echo "working tree: $(count .)"
