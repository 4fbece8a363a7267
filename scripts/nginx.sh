#!/usr/bin/env bash
# nginx.sh: installs nginx for bench-proxy without starting its service.
set -euo pipefail
PATH=$PATH:/usr/sbin
command -v nginx >/dev/null && exit 0
[ "$(id -u)" -eq 0 ] || { echo "bench-proxy needs nginx: install nginx-light"; exit 1; }
# Debian starts a service when it installs its package, unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
"$(dirname "$0")/quiet.sh" "nginx" bash -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light'
