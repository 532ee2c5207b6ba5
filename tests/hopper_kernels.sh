#!/usr/bin/env bash
# Do the kernels of attention_hopper*.cu multiply in a build for 90a? Where the compiler's architecture lacks
# wgmma their bodies are empty and compile all the same.
#   tests/hopper_kernels.sh BUILD_FOLDER    built with TAPESTRY_CUDA_ARCHITECTURES=90a CMAKE_CUDA_FLAGS=--no-compress,
#                                           which leaves the kernels' PTX readable in the objects
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 empty=0
for source in core/kernels/attention/attention_hopper*.cu; do
  object=$build/core/CMakeFiles/tapestry_core.dir/${source#core/}.o
  # Each kernel begins with .entry in PTX; text of the object's other parts follows no .entry.
  counts=$(tr '\0' '\n' <"$object" | grep -aE '^[[:print:][:space:]]*$' |
    awk '/\.entry / { ++kernels; open = 1 } open && /wgmma\.mma_async/ { ++full; open = 0 }
         END { print kernels + 0, full + 0 }')
  read -r kernels full <<<"$counts"
  echo "$source: $full of $kernels kernels multiply by wgmma"
  if [ "$kernels" -eq 0 ] || [ "$full" -ne "$kernels" ]; then empty=1; fi
done
[ "$empty" = 0 ] || { echo "tests/hopper_kernels.sh: a kernel is empty, or has no PTX to look at." >&2; exit 1; }
