#!/bin/sh
# usage: installed.sh BUILD_DIR
# Installs the programs for people and the library into a folder that the system knows nothing of, moves it, and runs them.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for component in client tools; do
  cmake --install "$1" --component "$component" --prefix "$scratch/there" >/dev/null
done
mv "$scratch/there" "$scratch/here"
for program in gradringctl gradring-run gradring-perf; do
  "$scratch/here/bin/$program" --version
done
