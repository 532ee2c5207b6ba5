#!/usr/bin/env bash
# Everything that needs a GPU, in one command: kernel tests, gradients and training against the CPU, then
# benchmarks, and one table at the end.
#
#   tests/gpu.sh pack     builds the cuda preset and lays binaries and libraries into build/gpu, so that
#                         they run on a machine with a GPU, a driver and the CUDA toolkit's libraries alone
#   tests/gpu.sh          runs them: build/gpu where it is, else it builds the cuda preset first
set -uo pipefail
cd "$(dirname "$0")/.."
bundle=build/gpu

pack() {
  set -e
  cmake/install-packages.sh test
  cmake --preset "${PRESET:-cuda}" -DBUILD_TESTING=ON
  cmake --build "build/${PRESET:-cuda}" --target tapestry cuda_core_tests nn_tests apps_tests
  rm -rf "$bundle" && mkdir -p "$bundle/bin" "$bundle/lib"
  cp "build/${PRESET:-cuda}/apps/tapestry" "build/${PRESET:-cuda}"/tests/{cuda_core,nn,apps}_tests "$bundle/bin"
  strip "$bundle"/bin/*
  # What Debian's packages provide; the driver, the toolkit and the C library are the machine's own.
  for binary in "$bundle"/bin/*; do ldd "$binary"; done | awk '/=> \// {print $3}' | sort -u |
    grep -Ev '/(ld-linux|libc|libm|libdl|libpthread|librt|libcuda|libcudart|libcublas|libcublasLt|libnvidia)[.-]' |
    while read -r library; do cp -L "$library" "$bundle/lib"; done
  openblas=$(ldconfig -p | awk '/libopenblas\.so\.0/ {print $NF; exit}')
  cp -L "$openblas" "$bundle/lib/libopenblas.so.0"  # loaded at run time
  du -sh "$bundle"
}

if [ "${1:-}" = pack ]; then pack; exit; fi
[ -d "$bundle" ] || (pack) || exit 1
export LD_LIBRARY_PATH="$PWD/$bundle/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}"
export TAPESTRY_BINARY="$PWD/$bundle/bin/tapestry"

table=() failed=0
# step NAME COMMAND...: runs it and notes how it ended.
step() {
  local name=$1 started=$SECONDS code; shift
  echo "== $name"
  "$@"; code=$?
  [ $code -eq 0 ] || failed=1
  table+=("$(printf '%-44s %-12s %5d s' "$name" "$([ $code -eq 0 ] && echo passed || echo "FAILED ($code)")" $((SECONDS - started)))")
}
# bench NAME CONFIG OVERRIDES...: notes tokens/s and the share of the peak.
bench() {
  local name=$1 json; shift
  json=$(mktemp)
  echo "== $name"
  if "$TAPESTRY_BINARY" bench "$@" --json "$json"; then
    table+=("$(printf '%-44s %s' "$name" "$(tr -d '\n' <"$json" | sed -E 's/.*"tokens_per_s": *([0-9]+).*"gemm_peak_gflops": *([0-9]+).*"peak_memory_bytes": *([0-9]+).*/\1 tokens\/s, products reach \2 GFLOP\/s, \3 bytes/')")")
  else
    table+=("$(printf '%-44s FAILED' "$name")"); failed=1
  fi
  rm -f "$json"
}

# Every case skips where no GPU answers.
step "kernels against naive loops" "$bundle/bin/cuda_core_tests" --gtest_brief=1
step "gradient table against the CPU" "$bundle/bin/nn_tests" --gtest_filter='CudaParity*' --gtest_brief=1
step "training against the CPU, resuming, moving" "$bundle/bin/apps_tests" --gtest_filter='*CudaTraining*' --gtest_brief=1
if command -v compute-sanitizer >/dev/null; then
  step "kernels under compute-sanitizer" compute-sanitizer --error-exitcode 9 "$bundle/bin/cuda_core_tests" --gtest_brief=1
  step "shared memory races" compute-sanitizer --tool racecheck --error-exitcode 9 "$bundle/bin/cuda_core_tests" \
    --gtest_brief=1 --gtest_filter='Attention*:Norm*:Embedding*:Softmax*'
else
  table+=("compute-sanitizer                            is not here: not run")
fi
if [ "${BENCH:-1}" = 1 ]; then
  gpu=(device=cuda)
  bench "GPT-2 124M, bfloat16, 64 x 1024" configs/gpt2_124m.yaml "${gpu[@]}" dtype=bfloat16 model.max_position_embeddings=1024 data.block_size=1024 --shape 64x1024
  bench "GPT-2 124M, float32, 16 x 1024" configs/gpt2_124m.yaml "${gpu[@]}" model.max_position_embeddings=1024 data.block_size=1024 --shape 16x1024
  bench "translation d 512, 6+6, bfloat16, 256x32x32" configs/multi30k_small.yaml "${gpu[@]}" dtype=bfloat16 model.hidden_size=512 \
    model.intermediate_size=2048 model.num_attention_heads=8 model.encoder_layers=6 model.decoder_layers=6 --shape 256x32x32
  bench "the same, float32" configs/multi30k_small.yaml "${gpu[@]}" model.hidden_size=512 \
    model.intermediate_size=2048 model.num_attention_heads=8 model.encoder_layers=6 model.decoder_layers=6 --shape 256x32x32
fi
echo
printf '%s\n' "${table[@]}"
exit $failed
