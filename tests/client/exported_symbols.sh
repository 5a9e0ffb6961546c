#!/bin/sh
# usage: exported_symbols.sh LIBRARY HEADER
# The library exports exactly the functions that the header declares.
set -eu
exported=$(nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
declared=$(grep -v '^ \*' "$2" | grep -o 'gradring_[a-z_]*(' | tr -d '(' | sort -u)
if [ "$exported" != "$declared" ]; then
  echo "exported by the library and declared in the header differ:"
  echo "$exported" >exported.txt
  echo "$declared" | diff exported.txt - || true
  exit 1
fi
echo "$exported" | wc -l
