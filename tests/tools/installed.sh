#!/bin/sh
# usage: installed.sh BUILD_DIR
# Installs the programs for people and the library into a folder that the system knows nothing of, moves it, and runs them;
# and looks for what watches: rules that Prometheus finds beside its configuration, and the dashboard.
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
share=$scratch/here/share/gradring
sed -n '/^rule_files:/,/^$/s/^  - //p' "$share/prometheus/prometheus.yml" | while read -r rules; do
  test -s "$share/prometheus/$rules"
done
test -s "$share/grafana/gradring.json"
if command -v promtool >/dev/null; then promtool check config "$share/prometheus/prometheus.yml"; fi
