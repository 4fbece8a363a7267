#!/usr/bin/env bash
# packages.sh [PROGRAM]: installs the Debian packages that the tests need: a C compiler
# for Go's race detector, curl for the examples in the documents, a browser for the admin UI,
# and the servers that tests start themselves. With a name such as nginx, it installs the package of this
# program only. It starts no service and creates no PostgreSQL cluster.
set -euo pipefail
PATH=$PATH:/usr/sbin
missing=()
# need PROGRAM PACKAGE…: adds the packages if the program is missing and wanted.
need() {
	local program=$1
	shift
	[[ -z $only || $only == "$program" ]] || return 0
	command -v "$program" >/dev/null || missing+=("$@")
}
only=${1:-}
need "$(go env CC)" gcc libc6-dev
need curl curl
need chromium chromium fonts-dejavu-core
need redis-server redis-server
need nginx nginx-light
need haproxy haproxy
# Debian installs PostgreSQL's server in a folder for each version, which is not on PATH.
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || need postgres postgresql
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || { echo "install these packages first: ${missing[*]}"; exit 1; }
	exec sudo -n env PATH="$PATH" HOME="$HOME" "$0" "$@"
fi
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
