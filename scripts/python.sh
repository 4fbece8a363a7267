#!/usr/bin/env bash
# python.sh DIR REQUIREMENTS: creates a virtual environment in DIR with exactly the
# requirements. On Debian, venv and pip are separate packages.
set -euo pipefail
dir=$1
requirements=$2

if ! python3 -m venv --clear "$dir"; then
	if ! python3 -m pip --version; then
		[ "$(id -u)" -eq 0 ] || { echo "python3 has neither venv nor pip: install python3-venv"; exit 1; }
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends python3-venv
		python3 -m venv --clear "$dir"
	else
		python3 -m venv --clear --without-pip "$dir"
	fi
fi
if "$dir/bin/python" -m pip --version; then
	"$dir/bin/python" -m pip install --disable-pip-version-check --no-deps -r "$requirements"
else
	python3 -m pip --python "$dir/bin/python" install --disable-pip-version-check --no-deps -r "$requirements"
fi
"$dir/bin/python" -c 'import openai, anthropic'
