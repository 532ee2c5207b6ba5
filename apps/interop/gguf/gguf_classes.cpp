#include "apps/interop/gguf/gguf_classes.h"

#include <array>

#include "apps/interop/gguf/gguf_engine.h"
#include "apps/interop/gguf/gguf_keys.h"

namespace tapestry::interop {
namespace {

// Llama's kin. `pairs`: which numbers of a head their engine turns together.
constexpr std::array<TensorRow, 11> llama_tensors(Change pairs) {
  return {{
      {"token_embd.weight", "embedding.weight", "V", "D"},
      {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
      {"blk.#.{attn_q,attn_k,attn_v}.*", "layers.#.self_attention.qkv.*", "QKK", "D", Stream::kNone,
       pairs},
      {"blk.#.attn_q_norm.weight", "layers.#.self_attention.q_norm.weight", "H", "", Stream::kNone,
       Change::kNone, &ModelFacts::normed_heads},
      {"blk.#.attn_k_norm.weight", "layers.#.self_attention.k_norm.weight", "H", "", Stream::kNone,
       Change::kNone, &ModelFacts::normed_heads},
      {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "Q"},
      {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
      {"blk.#.{ffn_gate,ffn_up}.*", "layers.#.feed_forward.up.*", "FF", "D"},
      {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
      {"output_norm.*", "norm.*", "D"},
      {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
       &ModelFacts::untied},
  }};
}
constexpr auto kLlamaTensors = llama_tensors(Change::kToNeighbours);
constexpr auto kQwenTensors = llama_tensors(Change::kToHalves);
constexpr TensorRow plus_one(const char* theirs, const char* ours, const char* size = "D",
                             bool ModelFacts::*when = nullptr) {
  return {theirs, ours, size, "", Stream::kNone, Change::kPlusOne, when};
}
// Their engine has whole weights of norms.
constexpr TensorRow kGemmaTensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    plus_one("blk.#.attn_norm.weight", "layers.#.self_attention_norm.weight"),
    plus_one("blk.#.post_attention_norm.weight", "layers.#.self_attention_norm.out.weight", "D",
             &ModelFacts::sandwich),
    {"blk.#.{attn_q,attn_k,attn_v}.weight", "layers.#.self_attention.qkv.weight", "QKK", "D",
     Stream::kNone, Change::kToHalves},
    plus_one("blk.#.attn_q_norm.weight", "layers.#.self_attention.q_norm.weight", "H",
             &ModelFacts::normed_heads),
    plus_one("blk.#.attn_k_norm.weight", "layers.#.self_attention.k_norm.weight", "H",
             &ModelFacts::normed_heads),
    {"blk.#.attn_output.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    plus_one("blk.#.ffn_norm.weight", "layers.#.feed_forward_norm.weight"),
    plus_one("blk.#.post_ffw_norm.weight", "layers.#.feed_forward_norm.out.weight", "D",
             &ModelFacts::sandwich),
    {"blk.#.{ffn_gate,ffn_up}.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"blk.#.ffn_down.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    plus_one("output_norm.weight", "norm.weight"),
};
constexpr TensorRow kOlmo2Tensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.{attn_q,attn_k,attn_v}.weight", "layers.#.self_attention.qkv.weight", "QKK", "D",
     Stream::kNone, Change::kToHalves},
    {"blk.#.attn_q_norm.weight", "layers.#.self_attention.q_norm.weight", "Q"},
    {"blk.#.attn_k_norm.weight", "layers.#.self_attention.k_norm.weight", "K"},
    {"blk.#.attn_output.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    {"blk.#.post_attention_norm.weight", "layers.#.self_attention_norm.weight", "D"},
    {"blk.#.{ffn_gate,ffn_up}.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"blk.#.ffn_down.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    {"blk.#.post_ffw_norm.weight", "layers.#.feed_forward_norm.weight", "D"},
    {"output_norm.weight", "norm.weight", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
};
constexpr TensorRow kNeoxTensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"blk.#.attn_qkv.*", "layers.#.self_attention.qkv.*", "DDD", "D"},
    {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "D"},
    {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
    {"blk.#.ffn_up.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"output_norm.*", "norm.*", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
    // Their engine wants a classifier of its own.
    {"output.weight", "embedding.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::tied},
};
constexpr TensorRow kGpt2Tensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"position_embd.weight", "positions.weight", "P", "D"},
    {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"blk.#.attn_qkv.*", "layers.#.self_attention.qkv.*", "DKK", "D"},
    {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "D"},
    {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
    {"blk.#.ffn_up.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"output_norm.*", "norm.*", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
};

constexpr TensorRow kPhi2Tensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"blk.#.{attn_q,attn_k,attn_v}.*", "layers.#.self_attention.qkv.*", "QKK", "D", Stream::kNone,
     Change::kToHalves},
    {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "Q"},
    {"blk.#.ffn_up.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"output_norm.*", "norm.*", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
    // Their engine wants a classifier of its own, with a bias.
    {"output.weight", "embedding.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::tied},
    {"output.bias", "output.bias", "V", "", Stream::kNone, Change::kNone, nullptr,
     /*optional=*/true},
};
// Packed, as ours are.
constexpr TensorRow kPhi3Tensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.attn_norm.weight", "layers.#.self_attention_norm.weight", "D"},
    {"blk.#.attn_qkv.weight", "layers.#.self_attention.qkv.weight", "QKK", "D", Stream::kNone,
     Change::kToHalves},
    {"blk.#.attn_output.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    {"blk.#.ffn_norm.weight", "layers.#.feed_forward_norm.weight", "D"},
    {"blk.#.ffn_up.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"blk.#.ffn_down.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    {"output_norm.weight", "norm.weight", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
};
constexpr TensorRow kCohereTensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.attn_norm.weight", "layers.#.self_attention_norm.weight", "D"},
    {"blk.#.{attn_q,attn_k,attn_v}.weight", "layers.#.self_attention.qkv.weight", "QKK", "D",
     Stream::kNone, Change::kToNeighbours},
    {"blk.#.attn_output.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    {"blk.#.{ffn_gate,ffn_up}.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"blk.#.ffn_down.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    {"output_norm.weight", "norm.weight", "D"},
};

}  // namespace

std::span<const GgufClass> gguf_classes() {
  static const HiddenAct swiglu{Activation::kSilu, /*gated=*/true};
  static const HiddenAct geglu{Activation::kGeluTanh, /*gated=*/true};
  static const GgufClass all[] = {
      {.name = "llama",
       .architecture = kLlama,
       .tensors = kLlamaTensors,
       .keys = gguf_keys::kLlama,
       .act = swiglu,
       .no_bias = true,
       .scalings = {RopeScalingType::kLinear, RopeScalingType::kYarn, RopeScalingType::kLlama3,
                    RopeScalingType::kLongrope}},
      {.name = "qwen2",
       .architecture = kQwen2,
       .tensors = kQwenTensors,
       .keys = gguf_keys::kLlama,
       .act = swiglu},
      {.name = "qwen3",
       .architecture = kQwen3,
       .tensors = kQwenTensors,
       .keys = gguf_keys::kLlama,
       .act = swiglu,
       .no_bias = true},
      {.name = "gemma",
       .architecture = kGemma,
       .tensors = kGemmaTensors,
       .keys = gguf_keys::kLlama,
       .act = geglu,
       .no_bias = true,
       .refuse_more = gguf_engine::refuse_gemma},
      {.name = "gemma2",
       .architecture = kGemma2,
       .tensors = kGemmaTensors,
       .keys = gguf_keys::kGemma2,
       .act = geglu,
       .no_bias = true,
       .windows = true,
       .refuse_more = gguf_engine::refuse_gemma2,
       .complete = gguf_engine::complete_gemma2},
      {.name = "gemma3",
       .architecture = kGemma3,
       .tensors = kGemmaTensors,
       .keys = gguf_keys::kGemma3,
       .act = geglu,
       .no_bias = true,
       .windows = true,
       .scalings = {RopeScalingType::kLinear},
       .refuse_more = gguf_engine::refuse_gemma3,
       .complete = gguf_engine::complete_gemma3},
      {.name = "olmo2",
       .architecture = kOlmo2,
       .tensors = kOlmo2Tensors,
       .keys = gguf_keys::kLlama,
       .act = swiglu,
       .no_bias = true},
      {.name = "smollm3",
       .architecture = kSmolLm3,
       .tensors = kLlamaTensors,
       .keys = gguf_keys::kLlama,
       .act = swiglu,
       .no_bias = true,
       .refuse_more = gguf_engine::refuse_smollm3},
      {.name = "gptneox",
       .architecture = kGptNeox,
       .tensors = kNeoxTensors,
       .keys = gguf_keys::kNeox,
       .act = Activation::kGeluTanh,
       .or_act = Activation::kGelu,
       .complete = gguf_engine::complete_neox},
      {.name = "phi2",
       .architecture = kPhi,
       .tensors = kPhi2Tensors,
       .keys = gguf_keys::kPhi2,
       .act = Activation::kGeluTanh,
       .complete = gguf_engine::complete_rotary_share},
      {.name = "phi3",
       .architecture = kPhi3,
       .tensors = kPhi3Tensors,
       .keys = gguf_keys::kPhi3,
       .act = swiglu,
       .no_bias = true,
       .scalings = {RopeScalingType::kLongrope},
       .longrope_by_tensors = true,
       .unused = {"attention.sliding_window"},
       .complete = gguf_engine::complete_rotary_share},
      {.name = "command-r",
       .architecture = kCohere,
       .tensors = kCohereTensors,
       .keys = gguf_keys::kCommandR,
       .act = swiglu,
       .no_bias = true,
       .refuse_more = gguf_engine::refuse_command_r},
      {.name = "cohere2",
       .architecture = kCohere2,
       .tensors = kCohereTensors,
       .keys = gguf_keys::kCohere2,
       .act = swiglu,
       .no_bias = true,
       .windows = true,
       .refuse_more = gguf_engine::refuse_cohere2},
      {.name = "gpt2",
       .architecture = kGpt2,
       .tensors = kGpt2Tensors,
       .keys = gguf_keys::kGpt2,
       .act = Activation::kGeluTanh,
       .scalings = {}}};
  return all;
}

const GgufClass* find_gguf_class(const std::string& name) {
  for (const GgufClass& one : gguf_classes()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

Architecture gguf_architecture(const GgufClass& one) {
  Architecture architecture = one.architecture;
  architecture.prefix = "";
  architecture.tensors = one.tensors;
  architecture.own_tensors = {};
  architecture.skipped = {};
  architecture.tied = {};
  architecture.written_twice = {};
  architecture.renamings = {};
  return architecture;
}

}  // namespace tapestry::interop
