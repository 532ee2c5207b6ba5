#include "apps/interop/gguf.h"

#include <array>
#include <bit>
#include <numeric>
#include <optional>

#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/gguf_vocabulary.h"
#include "apps/interop/huggingface_tokenizer.h"
#include "apps/interop/special_ids.h"
#include "apps/tasks/text_models.h"
#include "core/base/text.h"
#include "data/files/little_endian.h"

namespace tapestry::interop {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;

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

// The pairs of key and value in front of the tensors.
class Pairs {
 public:
  void text(const std::string& key, const std::string& value) {
    begin(key, kText);
    append(value);
  }
  void number(const std::string& key, int64_t value) {
    begin(key, kUint32);
    append_little_endian(bytes_, static_cast<uint32_t>(value));
  }
  void real(const std::string& key, double value) {
    begin(key, kFloat32);
    append(static_cast<float>(value));
  }
  void flag(const std::string& key, bool value) {
    begin(key, kBool);
    bytes_ += static_cast<char>(value ? 1 : 0);
  }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    begin_list(key, kText, values.size());
    for (const std::string& value : values) append(value);
  }
  void reals(const std::string& key, const std::vector<float>& values) {
    begin_list(key, kFloat32, values.size());
    for (const float value : values) append(value);
  }
  void integers(const std::string& key, const std::vector<int32_t>& values) {
    begin_list(key, kInt32, values.size());
    for (const int32_t value : values) {
      append_little_endian(bytes_, static_cast<uint32_t>(value));
    }
  }

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  enum Type : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kText = 8, kList = 9 };

  void begin(const std::string& key, Type type) {
    append(key);
    append_little_endian(bytes_, static_cast<uint32_t>(type));
    ++count_;
  }
  void begin_list(const std::string& key, Type type, size_t size) {
    begin(key, kList);
    append_little_endian(bytes_, static_cast<uint32_t>(type));
    append_little_endian(bytes_, static_cast<uint64_t>(size));
  }
  void append(const std::string& text) {
    append_little_endian(bytes_, static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void append(float value) { append_little_endian(bytes_, std::bit_cast<uint32_t>(value)); }

  std::string bytes_;
  uint64_t count_ = 0;
};

void add_model(const Config& config, const std::string& name, int64_t vocab, Pairs& pairs) {
  const ModelOptions& o = config.model;
  pairs.text("general.architecture", name);
  pairs.text("general.name", "Tapestry");
  pairs.number("general.file_type", 0);
  pairs.number(name + ".context_length", o.max_position_embeddings);
  pairs.number(name + ".embedding_length", o.hidden_size);
  pairs.number(name + ".block_count", o.num_hidden_layers);
  pairs.number(name + ".feed_forward_length", o.intermediate_size);
  pairs.number(name + ".attention.head_count", o.num_attention_heads);
  if (name == "gpt2") {
    pairs.number(name + ".vocab_size", vocab);
    pairs.real(name + ".attention.layer_norm_epsilon", o.norm_eps);
    return;
  }
  pairs.number(name + ".attention.head_count_kv",
               o.num_key_value_heads > 0 ? o.num_key_value_heads : o.num_attention_heads);
  if (o.head_size > 0) {
    pairs.number(name + ".attention.key_length", o.head_size);
    pairs.number(name + ".attention.value_length", o.head_size);
  }
  pairs.number(name + ".rope.dimension_count", o.chosen_head_size());
  pairs.number(name + ".vocab_size", vocab);
  pairs.real(name + ".attention.layer_norm_rms_epsilon", o.norm_eps);
  pairs.real(name + ".rope.freq_base", o.rope_theta);
  if (o.rope_scaling.type == RopeScalingType::kLinear) {
    pairs.text(name + ".rope.scaling.type", "linear");
    pairs.real(name + ".rope.scaling.factor", o.rope_scaling.factor);
  }
}

void add_vocabulary(const ModelFiles& model, Pairs& pairs) {
  const std::optional<GgufVocabulary> vocabulary = gguf_vocabulary(model);
  if (!vocabulary) {
    pairs.text("tokenizer.ggml.model", "none");
    return;
  }
  pairs.text("tokenizer.ggml.model", vocabulary->engine);
  pairs.text("tokenizer.ggml.pre", vocabulary->pre);
  pairs.texts("tokenizer.ggml.tokens", vocabulary->texts);
  if (!vocabulary->scores.empty()) pairs.reals("tokenizer.ggml.scores", vocabulary->scores);
  pairs.integers("tokenizer.ggml.token_type", vocabulary->types);
  if (!vocabulary->merges.empty()) pairs.texts("tokenizer.ggml.merges", vocabulary->merges);
  const tapestry::SpecialIds& special = model.tokenizers.source->special();
  const bool begins = begins_with_eos(model.config) && !special.document().empty();
  pairs.number("tokenizer.ggml.bos_token_id",
               begins_with_eos(model.config) ? document_start(model) : special.bos);
  pairs.number("tokenizer.ggml.eos_token_id", special.eos);
  // The end of an answer, if it is another token than eos; their engine finds further ends by their
  // names.
  if (!special.more_ends.empty()) {
    pairs.number("tokenizer.ggml.eot_token_id", special.more_ends.front());
  }
  if (special.unk) pairs.number("tokenizer.ggml.unknown_token_id", *special.unk);
  if (special.pad) pairs.number("tokenizer.ggml.padding_token_id", *special.pad);
  pairs.flag("tokenizer.ggml.add_bos_token", begins);
  if (vocabulary->space_prefix) {
    pairs.flag("tokenizer.ggml.add_space_prefix", *vocabulary->space_prefix);
  }
  const std::string chat = chat_template_of(model.tokenizers);
  if (!chat.empty()) pairs.text("tokenizer.chat_template", chat);
}

// The factors by which each frequency of a head is divided, if they are not all equal.
void add_rope_factors(const ModelOptions& options, std::vector<TensorToWrite>& tensors) {
  if (options.rope_scaling.type != RopeScalingType::kLlama3) return;
  const int64_t size = options.chosen_head_size();
  const RopeFrequencies usual(options.rope_theta), scaled(options.rope_theta, options.rope_scaling);
  std::vector<float> factors;
  for (int64_t i = 0; i < size / 2; ++i) {
    factors.push_back(static_cast<float>(usual(i, size) / scaled(i, size)));
  }
  tensors.emplace_back("rope_freqs.weight", Tensor::from(factors, {size / 2}));
}

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

uint64_t bytes_of_tensor(const TensorToWrite& tensor) {
  return static_cast<uint64_t>(tensor.shape.numel() * size_of(tensor.dtype));
}

void write_gguf(const Pairs& pairs, const std::vector<TensorToWrite>& tensors,
                const ByteSink& sink) {
  std::string head;
  append_little_endian(head, kMagic);
  append_little_endian(head, kVersion);
  append_little_endian(head, static_cast<uint64_t>(tensors.size()));
  append_little_endian(head, pairs.count());
  head += pairs.bytes();
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    append_little_endian(head, static_cast<uint64_t>(tensor.name.size()));
    head += tensor.name;
    append_little_endian(head, static_cast<uint32_t>(tensor.shape.rank()));
    for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
      append_little_endian(head, static_cast<uint64_t>(tensor.shape[i]));
    }
    append_little_endian(head, uint32_t{0});  // float32
    append_little_endian(head, offset);
    offset += aligned(bytes_of_tensor(tensor));
  }
  head.append(aligned(head.size()) - head.size(), '\0');
  sink(head.data(), head.size());
  for (const TensorToWrite& tensor : tensors) {
    const Tensor values = tensor.content();
    const uint64_t bytes = bytes_of_tensor(tensor);
    sink(values.raw(), bytes);
    const std::string padding(aligned(bytes) - bytes, '\0');
    sink(padding.data(), padding.size());
  }
}

}  // namespace

std::string gguf_note(const ModelFiles& model) {
  const Tokenizer& tokenizer = *model.tokenizers.target;
  const tapestry::SpecialIds& special = tokenizer.special();
  if (!gguf_vocabulary(model)) {
    return "the file has no tokenizer (tokenizer.ggml.model is none): programs around llama.cpp do "
           "not know this one, and read and write ids only";
  }
  if (special.more_ends.size() < 2) return "";
  const std::span<const int32_t> more = special.more_ends;
  return concat("a GGUF file has two ends of a text, here '", tokenizer.piece(special.eos),
                "' and '", tokenizer.piece(more[0]), "': a program must know the others itself: ",
                quoted_tokens(tokenizer, more.subspan(1)));
}

namespace {

/// A class of Hugging Face's as their engine has it.
struct GgufClass {
  const Architecture& architecture;
  std::span<const TensorRow> tensors;
  HiddenAct act;
  bool no_bias = false;  ///< their engine reads none of attention, though the class may have one
};

std::span<const GgufClass> gguf_classes() {
  static const HiddenAct swiglu{Activation::kSilu, /*gated=*/true};
  static const GgufClass all[] = {{kLlama, kLlamaTensors, swiglu, true},
                                  {kQwen2, kQwenTensors, swiglu},
                                  {kQwen3, kQwenTensors, swiglu, true},
                                  {kGpt2, kGpt2Tensors, Activation::kGeluTanh}};
  return all;
}

Reasons reasons_against(const GgufClass& one, const ModelFiles& model) {
  const Config config = exported_facts(one.architecture, model).config;
  const ModelOptions& o = config.model;
  Reasons reasons = misfits(one.architecture, config);
  if (one.no_bias && o.has_query_bias()) {
    reasons.push_back(concat(o.bias ? "model.bias: true" : "model.attention_bias",
                             " has no place in ", one.architecture.name));
  }
  if (o.hidden_act != one.act) {
    reasons.push_back(
        concat("model.hidden_act: ", name_of(o.hidden_act), " is not ", name_of(one.act)));
  }
  return reasons;
}

/// The class that has a place for all of the model. Throws Error(kConfig) with the reasons of the
/// one that is nearest.
const GgufClass& fitting_class(const ModelFiles& model) {
  for (const GgufClass& one : gguf_classes()) {
    if (reasons_against(one, model).empty()) return one;
  }
  const bool rms = model.config.model.norm == NormKind::kRms;
  const GgufClass& nearest = rms ? gguf_classes().front() : gguf_classes().back();
  fail(ErrorKind::kConfig, "[export] ", model.folder, " has no place in a GGUF file:\n  ",
       join(reasons_against(nearest, model), ";\n  "), '.');
}

}  // namespace

CheckpointContent gguf_files(const ModelFiles& model) {
  const GgufClass& found = fitting_class(model);
  const Architecture& architecture = found.architecture;
  const ModelFacts facts = exported_facts(architecture, model);
  const ModelOptions& o = model.config.model;
  std::vector<TensorPair> table = expand(found.tensors, facts);
  if (folds_scale(architecture, model.config)) fold_scale(model.config, table);
  Pairs pairs;
  add_model(model.config, architecture.name, facts.counts.source_vocab, pairs);
  add_vocabulary(model, pairs);
  CheckpointContent files;
  std::vector<TensorToWrite> tensors =
      converted_tensors(model, table, layout_of(facts), DType::kFloat32);
  add_rope_factors(o, tensors);
  files["model.gguf"] = [pairs, tensors](const ByteSink& sink) {
    write_gguf(pairs, tensors, sink);
  };
  return files;
}

}  // namespace tapestry::interop
