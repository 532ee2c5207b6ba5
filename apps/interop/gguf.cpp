#include "apps/interop/gguf.h"

#include <bit>
#include <numeric>

#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/tasks/language_modelling.h"
#include "core/text.h"
#include "data/little_endian.h"
#include "data/sentencepiece_model.h"

namespace tapestry::interop {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;

constexpr TensorRow kLlamaTensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"blk.#.{attn_q,attn_k,attn_v}.*", "layers.#.self_attention.qkv.*", "DKK", "D", Stream::kNone,
     Change::kToNeighbours},
    {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "D"},
    {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
    {"blk.#.{ffn_gate,ffn_up}.*", "layers.#.feed_forward.up.*", "FF", "D"},
    {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"output_norm.*", "norm.*", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
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
  pairs.number(name + ".rope.dimension_count", o.hidden_size / o.num_attention_heads);
  pairs.number(name + ".vocab_size", vocab);
  pairs.real(name + ".attention.layer_norm_rms_epsilon", o.norm_eps);
  pairs.real(name + ".rope.freq_base", o.rope_theta);
}

// Their engine merges pieces by score as SentencePiece does, but normalises nothing, and needs a
// piece for each byte. Other vocabularies stay out: the file then has the model alone.
void add_vocabulary(const ModelFiles& model, Pairs& pairs) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const auto files = model.tokenizers.files();
  const auto file = files.find("tokenizer.model");
  SentencePieceModel pieces;
  if (file != files.end()) pieces = SentencePieceModel::parse(file->second, file->first);
  if (pieces.algorithm != SentencePieceModel::kBpe || !pieces.byte_fallback) {
    pairs.text("tokenizer.ggml.model", "none");
    return;
  }
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const SentencePieceModel::Piece& piece : pieces.pieces) {
    texts.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(piece.type);
  }
  pairs.text("tokenizer.ggml.model", "llama");
  pairs.text("tokenizer.ggml.pre", "default");
  pairs.texts("tokenizer.ggml.tokens", texts);
  pairs.reals("tokenizer.ggml.scores", scores);
  pairs.integers("tokenizer.ggml.token_type", types);
  const SpecialIds ids = special_ids(tokenizer);
  const bool begins = begins_with_eos(model.config);
  pairs.number("tokenizer.ggml.bos_token_id", *(begins ? ids.eos : ids.bos));
  pairs.number("tokenizer.ggml.eos_token_id", *ids.eos);
  if (ids.unk) pairs.number("tokenizer.ggml.unknown_token_id", *ids.unk);
  if (ids.pad) pairs.number("tokenizer.ggml.padding_token_id", *ids.pad);
  pairs.flag("tokenizer.ggml.add_bos_token", begins);
  pairs.flag("tokenizer.ggml.add_space_prefix", pieces.add_dummy_prefix);
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

CheckpointContent gguf_files(const ModelFiles& model) {
  const bool llama = model.config.model.norm == NormKind::kRms;
  const Architecture& architecture = llama ? kLlama : kGpt2;
  const ModelFacts facts = exported_facts(architecture, model);
  Reasons reasons = misfits(architecture, facts.config);
  const ModelOptions& o = model.config.model;
  if (llama && o.bias) reasons.emplace_back("model.bias: true has no place in llama");
  if (o.rope_scaling.type != RopeScalingType::kNone) {
    reasons.push_back(concat("model.rope_scaling: ", name_of(o.rope_scaling.type),
                             " has no place in this export"));
  }
  const HiddenAct expected = llama ? HiddenAct(Activation::kSilu, true) : Activation::kGeluTanh;
  if (o.hidden_act != expected) {
    reasons.push_back(
        concat("model.hidden_act: ", name_of(o.hidden_act), " is not ", name_of(expected)));
  }
  if (!reasons.empty()) {
    fail(ErrorKind::kConfig, "[export] ", model.folder, " has no place in a GGUF file:\n  ",
         join(reasons, ";\n  "), '.');
  }
  const std::span<const TensorRow> rows =
      llama ? std::span<const TensorRow>(kLlamaTensors) : kGpt2Tensors;
  std::vector<TensorPair> table = expand(rows, facts);
  if (folds_scale(architecture, model.config)) fold_scale(model.config, table);
  Pairs pairs;
  add_model(model.config, architecture.name, facts.counts.source_vocab, pairs);
  add_vocabulary(model, pairs);
  CheckpointContent files;
  files["model.gguf"] =
      [pairs, tensors = converted_tensors(model, table, layout_of(facts), DType::kFloat32)](
          const ByteSink& sink) { write_gguf(pairs, tensors, sink); };
  return files;
}

}  // namespace tapestry::interop
