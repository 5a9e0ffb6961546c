# shellcheck shell=bash
# Shared by the scripts of this folder, after tools/lib/shell.sh.
# shellcheck disable=SC2154  # which has set root

# The version that CMakeLists.txt says.
version() { sed -n 's/^project(gradring VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt"; }

# The same for every build of a commit; where there is no git, of a release.
source_date() {
  git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CMakeLists.txt"
}

# copy_source FOLDER: what belongs to the project, and nothing that was built, into an empty folder.
copy_source() {
  rm -rf "$1"
  mkdir -p "$1"
  if git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    (cd "$root" && git ls-files -z --cached --others --exclude-standard |
      while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done |
      tar --null --files-from=- -cf -) | tar -xf - -C "$1"
  else
    tar -C "$root" --exclude='./build*' --exclude=./.git -cf - . | tar -xf - -C "$1"
  fi
}

# Whoever has no package that a script needs is told which.
need() {  # PROGRAM PACKAGE
  command -v "$1" >/dev/null || die "needs $1: install the package $2 (tools/install-dependencies --full has all)"
}
