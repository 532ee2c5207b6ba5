#!/usr/bin/env bash
# What the PTX of a CUDA build tells without a GPU:
#   - The kernels of attention_hopper*.cu multiply. Where the compiler's architecture lacks wgmma their bodies are
#     empty and compile all the same.
#   - No kernel has memory of its own. A parameter that is indexed, or of which a reference is taken, is copied there by
#     each thread: an addition took 3.2 times as long. `const __grid_constant__` leaves it where it is.
#   tests/cuda_kernels.sh BUILD_FOLDER    built with TAPESTRY_CUDA_ARCHITECTURES=90a CMAKE_CUDA_FLAGS=--no-compress,
#                                         which leaves the kernels' PTX readable in the objects
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 wrong=0 all=0
with_memory=tree_add_kernel  # its stack of partial sums

ptx_of() {  # SOURCE
  tr '\0' '\n' <"$build/core/CMakeFiles/tapestry_core.dir/${1#core/}.o" | grep -aE '^[[:print:][:space:]]*$'
}
for source in $(git ls-files 'core/*.cu'); do
  # Each kernel begins with .entry in PTX; text of the object's other parts follows no .entry.
  counts=$(ptx_of "$source" | awk -v ours="$with_memory" '
    /\.entry / { ++kernels; name = $0; open = 1 }
    open && /wgmma\.mma_async/ { ++full; open = 0 }
    /__local_depot[0-9]*\[/ && name !~ ours { ++local }
    END { print kernels + 0, full + 0, local + 0 }')
  read -r kernels full local <<<"$counts"
  all=$((all + kernels))
  if [ "$local" != 0 ]; then echo "$source: $local of $kernels kernels have memory of their own"; wrong=1; fi
  [[ $source = *attention_hopper*.cu ]] || continue
  echo "$source: $full of $kernels kernels multiply by wgmma"
  if [ "$kernels" = 0 ] || [ "$full" != "$kernels" ]; then wrong=1; fi
done
[ "$all" != 0 ] || { echo "There is no PTX to look at."; wrong=1; }
[ "$wrong" = 0 ] || { echo "tests/cuda_kernels.sh: see above." >&2; exit 1; }
