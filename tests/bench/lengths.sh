#!/usr/bin/env bash
# Training steps of one small GPT on 8,192 tokens each, as ever fewer and longer sequences: memory stays
# (it is linear in the length of a sequence), operations grow with the attention's.
#   [SHAPES="1x1024 1x2048"] tests/bench/lengths.sh TAPESTRY [section.key=value ...]
set -euo pipefail
tapestry=$1
config=$(dirname "$0")/../../configs/gpt2_124m.yaml
printf '%-8s %12s %12s %14s %15s\n' shape tokens/s GFLOP/s share_of_peak peak_memory_MB
for shape in ${SHAPES:-16x512 8x1024 4x2048 2x4096 1x8192}; do
  "$tapestry" bench "$config" --shape $shape --steps 3 --warmup-steps 1 tokenizer.vocab_size=8000 \
      model.hidden_size=256 model.intermediate_size=1024 model.num_attention_heads=4 \
      model.num_hidden_layers=4 model.max_position_embeddings=8192 "${@:2}" |
    awk -v shape=$shape '{ value[$1] = $2 } END {
      printf "%-8s %12.0f %12.0f %14.2f %15.0f\n", shape, value["tokens_per_s"], value["gflops"],
             value["share_of_peak"], value["peak_memory_bytes"] / 1e6 }'
done
