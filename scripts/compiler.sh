#!/usr/bin/env bash
# compiler.sh: a C compiler, which Go's race detector is linked with.
set -euo pipefail
command -v "$(go env CC)" >/dev/null && exit 0
[ "$(id -u)" -eq 0 ] || { echo "the race detector needs a C compiler: install gcc and libc6-dev"; exit 1; }
"$(dirname "$0")/quiet.sh" "C compiler" bash -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev'
