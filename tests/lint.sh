#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy, over the sources of the libraries and the binary, or over
# the files that are named. They are compiled without precompiled headers: each includes what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake/install-packages.sh lint
cmake --preset release -B build/lint -DBUILD_TESTING=OFF -DTAPESTRY_BATCHES=OFF \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
files=("$@")
if [ $# -eq 0 ]; then
  mapfile -t files < <(git ls-files core autograd nn optim data apps | grep '\.cpp$' | grep -v '^core/cuda/')
fi
# Kernels that are compiled once for each set of vector instructions are looked at once.
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy-16 --quiet -p build/lint --extra-arg=-DHWY_COMPILE_ONLY_SCALAR 2>/dev/null
echo "${#files[@]} files are clean."
