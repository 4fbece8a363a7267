#!/usr/bin/env bash
# packages.sh: what the tests need of Debian's packages: a C compiler, which Go's
# race detector is linked with, and curl, which runs the documents' examples.
set -euo pipefail
missing=()
command -v "$(go env CC)" >/dev/null || missing+=(gcc libc6-dev)
command -v curl >/dev/null || missing+=(curl)
[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" -eq 0 ] || { echo "the tests need these packages: ${missing[*]}"; exit 1; }
"$(dirname "$0")/quiet.sh" "packages" bash -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends ${missing[*]}"
