#!/usr/bin/env bash
# `tapestry gradcheck` over random choices of layers: every one must be found right.
#   tests/gradchecks.sh build/release/apps/tapestry [COUNT] [SEED]
set -uo pipefail
binary=$(realpath "$1") count=${2:-300}
RANDOM=${3:-1}
cd "$(dirname "$(realpath "$0")")/../configs" || exit 1
one_of() { local choices=("$@"); echo "${choices[RANDOM % $#]}"; }

# A config, and what it takes beside the keys of all.
configs=(multi30k_small multi30k_denoising summarize_packages gpt_fortunes shakespeare_llama shakespeare_modern
  bert_fortunes classify_fortunes answer_spans answer_sums)
keys() {
  echo "model.norm=$(one_of layernorm rmsnorm batchnorm)"
  echo "model.norm_position=$(one_of pre post)"
  echo "model.hidden_act=$(one_of gelu gelu_tanh silu swiglu geglu)"
  echo "model.position_embedding=$(one_of sinusoidal learned rope alibi relative none)"
  echo "model.initializer=$(one_of xavier_packed xavier_uniform xavier_normal kaiming normal)"
  echo "model.num_attention_heads=$(one_of 1 2 4)"
  [ $((RANDOM % 2)) = 0 ] && echo "model.bias=$(one_of true false)"
  [ $((RANDOM % 2)) = 0 ] && echo "model.tie_word_embeddings=$(one_of true false)"
  [ $((RANDOM % 3)) = 0 ] && echo "model.attention_window=2"
}

tried=0 failed=0 refused=0
while [ $tried -lt "$count" ]; do
  config=$(one_of "${configs[@]}")
  mapfile -t chosen < <(keys)
  output=$("$binary" gradcheck "$config.yaml" --filter "model of" "${chosen[@]}" 2>&1)
  code=$?
  if [ $code = 2 ]; then  # keys that do not go together
    refused=$((refused + 1))
    [ $refused -gt $((20 * count)) ] && { echo "$output"; exit 1; }
    continue
  fi
  tried=$((tried + 1))
  [ $code = 0 ] && continue
  failed=$((failed + 1))
  printf '%s\n' "FAILED (exit code $code): $config ${chosen[*]}" "$(grep "model of" <<< "$output")"
done
echo "$((tried - failed)) of $tried models passed, $refused choices were refused"
[ $failed = 0 ]
