#!/usr/bin/env bash
# npm.sh PROJECT DIR: installs the packages of the project's lock file in DIR, and links them to the project.
set -euo pipefail
project=$1
dir=$2
install() {
	cp "$project/package.json" "$project/package-lock.json" "$dir/"
	npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund
}
export -f install
export project dir
"$(dirname "$0")/cached.sh" "$dir" "$(dirname "$0")/quiet.sh" "packages of $project" bash -euo pipefail -c install
[ -L "$project/node_modules" ] || rm -rf "$project/node_modules"
ln -sfn "$dir/node_modules" "$project/node_modules"
