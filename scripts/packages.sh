#!/usr/bin/env bash
# packages.sh: installs the Debian packages that the tests need: a C compiler for
# Go's race detector, curl for the examples in the documents, and the servers that
# tests start themselves. It starts no service and creates no PostgreSQL cluster.
set -euo pipefail
missing=()
command -v "$(go env CC)" >/dev/null || missing+=(gcc libc6-dev)
command -v curl >/dev/null || missing+=(curl)
command -v redis-server >/dev/null || missing+=(redis-server)
# Debian installs PostgreSQL's server in a folder for each version, which is not on PATH.
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" -eq 0 ] || { echo "the tests need these packages: ${missing[*]}"; exit 1; }
made=()
trap 'rm -f "${made[@]}"' EXIT
# Debian starts a service when it installs its package, unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	made+=("$policy")
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
# Debian also creates a cluster with the first server of a version, unless this file forbids it.
cluster=/etc/postgresql-common/createcluster.d/tierway.conf
if [[ " ${missing[*]} " == *" postgresql "* ]]; then
	made+=("$cluster")
	mkdir -p "$(dirname "$cluster")"
	echo 'create_main_cluster = false' >"$cluster"
fi
"$(dirname "$0")/quiet.sh" "packages" bash -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends ${missing[*]}"
