# shellcheck shell=bash
# Shared by the scripts in tools/. A script sets -euo pipefail and sources this file.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Compiled objects are the same whatever folder the tree was cloned into, so let ccache see it so.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root for '$*', and sudo is not installed; run it as root"
  fi
}

# with_progress LABEL COMMAND...: runs the command quietly, but says every few seconds that it lives
# and what it printed last; when it fails, shows the end of its output and returns its status.
with_progress() {
  local label=$1 log ticker status=0 began=$SECONDS
  shift
  log=$(mktemp)
  printf '%s ...\n' "$label"
  # The command stays in the foreground so that Ctrl-C reaches it; the ticker ends with the script.
  (
    while sleep 4 >/dev/null 2>&1 && kill -0 "$$" 2>/dev/null; do
      printf '  %4d s  %s\n' "$((SECONDS - began))" "$(tail -n 1 "$log" 2>/dev/null | tr -d '\r' | cut -c 1-100)"
    done
  ) &
  ticker=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  if [ "$status" != 0 ]; then
    printf '%s failed (exit status %d); the end of its output:\n' "$label" "$status" >&2
    tail -n 40 "$log" >&2
  fi
  rm -f "$log"
  return "$status"
}

# configure PRESET FOLDER: as `cmake --preset`, but a build folder that was made with another
# generator (plain `cmake -B build`) keeps it.
configure() {
  local cache=$root/$2/CMakeCache.txt generator=
  [ -f "$cache" ] && generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$cache")
  (cd "$root" && cmake --preset "$1" ${generator:+-G "$generator"})
}
