#!/bin/sh
# usage: check.sh BUILD_DIR SOURCE_DIR C_COMPILER CXX_COMPILER FLAGS
# Installs the client component into a scratch tree, and builds and runs programs against it: through
# CMake's package and through pkg-config.
set -eu
build=$1 source=$2 cc=$3 cxx=$4 flags=$5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --component client --prefix "$scratch/usr" >/dev/null
cmake -S "$source/package" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/usr" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/in_cpp"

pc=$(find "$scratch/usr" -name gradring.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046,SC2086  # they are lists of words
"$cc" -std=c11 -Wall -Wextra -Werror -pedantic $flags "$source/c11_program.c" -o "$scratch/in_c" \
  $(pkg-config --cflags --libs gradring)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir gradring) "$scratch/in_c"
# Without the flags, of which some are the linker's: nothing is linked or run.
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Wconversion -Wsign-conversion -Werror -pedantic -fsyntax-only "$source/package/headers.cc" \
  $(pkg-config --cflags gradring)
# shellcheck disable=SC2046
"$cxx" -std=c++14 -fsyntax-only "$source/package/headers.cc" $(pkg-config --cflags gradring) 2>"$scratch/says" && exit 1
grep -q "gradring.hpp needs C++17" "$scratch/says"
pkg-config --modversion gradring
