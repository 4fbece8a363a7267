#!/usr/bin/env bash
# packages.sh: what the tests need of Debian's packages: a C compiler, which Go's
# race detector is linked with, curl, which runs the documents' examples, and the
# servers that tests start themselves. No service is started, and PostgreSQL gets
# no cluster that would be.
set -euo pipefail
missing=()
command -v "$(go env CC)" >/dev/null || missing+=(gcc libc6-dev)
command -v curl >/dev/null || missing+=(curl)
command -v redis-server >/dev/null || missing+=(redis-server)
# Debian keeps PostgreSQL's server in a folder of its version, off PATH.
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" -eq 0 ] || { echo "the tests need these packages: ${missing[*]}"; exit 1; }
made=()
trap 'rm -f "${made[@]}"' EXIT
# Debian starts a service as it installs it, unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	made+=("$policy")
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
# And it makes a cluster for the first server of a version, unless this one does.
cluster=/etc/postgresql-common/createcluster.d/tierway.conf
if [[ " ${missing[*]} " == *" postgresql "* ]]; then
	made+=("$cluster")
	mkdir -p "$(dirname "$cluster")"
	echo 'create_main_cluster = false' >"$cluster"
fi
"$(dirname "$0")/quiet.sh" "packages" bash -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends ${missing[*]}"
