# shellcheck shell=bash
# Which clang-tidy checks the tree. Debian's goes through every header of the system for every file,
# and takes four times as long as one that does not (measured: 14.8 s against 3.5 s for one file).

# shellcheck source-path=SCRIPTDIR source=shell.sh
. "$(dirname "${BASH_SOURCE[0]}")/shell.sh"

clang_tidy_version=23.1.4

# Prints the program: that version from PyPI in a virtual environment under build-tidy/, or the
# distribution's own where PyPI cannot be reached, which is said.
clang_tidy() {
  local venv=$root/build-tidy/venv log=$root/build-tidy/install.log
  mkdir -p "$root/build-tidy"
  if [ ! -x "$venv/bin/clang-tidy" ] &&
    ! { python3 -m venv "$venv" && "$venv/bin/pip" install "clang-tidy==$clang_tidy_version"; } >"$log" 2>&1; then
    printf 'clang-tidy %s could not be installed (%s); the distribution'"'"'s own takes its time\n' \
      "$clang_tidy_version" "$log" >&2
    command -v clang-tidy
    return
  fi
  printf '%s\n' "$venv/bin/clang-tidy"
}
