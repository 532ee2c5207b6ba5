#include "apps/interop/ctranslate2.h"

#include <set>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/ctranslate2_variables.h"
#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/huggingface_tokenizer.h"
#include "apps/interop/special_ids.h"
#include "core/base/text.h"
#include "data/files/little_endian.h"

namespace tapestry::interop {
namespace {

constexpr uint32_t kBinaryVersion = 6;
// Keys of our `model` section that their engine has a place for, or that are looked at below.
constexpr const char* kFeatures[] = {"dropout",
                                     "attention_dropout",
                                     "activation_dropout",
                                     "num_key_value_heads",
                                     "value_head_size",
                                     "head_size",
                                     "attention_scale",
                                     "logit_scale",
                                     "attention_bias",
                                     "embedding_norm",
                                     "output_bias",
                                     "share_encoder_decoder_embeddings"};
// The same of a causal model.
constexpr const char* kCausalFeatures[] = {"qk_norm", "norm_unit_offset"};

// Programs give the tokens of languages themselves.
std::vector<int32_t> beside_languages(const tapestry::SpecialIds& special,
                                      std::vector<int32_t> ids) {
  std::erase_if(ids, [&](int32_t id) { return special.is_language(id); });
  return ids;
}

Reasons reasons_against(const ModelFiles& model) {
  const Config& config = model.config;
  const ModelOptions& options = config.model;
  Reasons reasons;
  const auto expect = [&](bool ok, const std::string& what) {
    if (!ok) reasons.push_back(what);
  };
  const ModelType type = config.model_type;
  if (type != ModelType::kEncoderDecoder && type != ModelType::kDecoder) {
    return {concat("model.type: ", name_of(type))};
  }
  expect(options.norm != NormKind::kBatch, "model.norm: batchnorm");
  expect(options.has_final_norm() == (options.norm_position == NormPosition::kPre),
         "model.final_norm, which pre-norm models have and others have not");
  const bool causal = type == ModelType::kDecoder;
  std::vector<const char*> features(std::begin(kFeatures), std::end(kFeatures));
  if (causal)
    features.insert(features.end(), std::begin(kCausalFeatures), std::end(kCausalFeatures));
  for (const std::string& feature : features_beside(features, config)) reasons.push_back(feature);
  expect(options.qk_norm != QkNorm::kProjection, "model.qk_norm: projection");
  expect(causal || (options.has_query_bias() == options.bias &&
                    options.has_attention_out_bias() == options.bias),
         "model.attention_bias");
  expect(options.value_head_size == 0 || options.value_head_size == options.chosen_head_size(),
         "model.value_head_size");
  const NormPosition norms = options.norm_position;
  expect(norms == NormPosition::kPost || norms == NormPosition::kPre,
         concat("model.norm_position: ", name_of(norms)));
  expect(options.rope_scaling.type == RopeScalingType::kNone, "model.rope_scaling");
  const Activation act = options.hidden_act.activation;
  expect(act == Activation::kRelu || act == Activation::kGelu || act == Activation::kGeluTanh ||
             act == Activation::kSilu,
         concat("model.hidden_act: ", name_of(options.hidden_act)));
  const PositionEmbedding positions = options.position_embedding;
  expect(positions != PositionEmbedding::kAlibi, "model.position_embedding: alibi");
  expect(!causal || positions != PositionEmbedding::kRelative,
         "model.position_embedding: relative of a causal model");
  if (type == ModelType::kEncoderDecoder) {
    const tapestry::SpecialIds& read = model.tokenizers.source->special();
    const std::vector<int32_t> before = beside_languages(read, read.side().before);
    const tapestry::SpecialIds& written = model.tokenizers.target->special();
    expect((before.empty() || before == std::vector<int32_t>{read.bos}) &&
               read.side().after == std::vector<int32_t>{read.eos} &&
               beside_languages(written, written.target().before).empty(),
           "what the tokenizer puts around texts beside bos, eos and languages");
  }
  return reasons;
}

class Writer {
 public:
  explicit Writer(const ByteSink& sink) : sink_(sink) {}

  template <std::unsigned_integral T>
  void number(T value) {
    std::string bytes;
    append_little_endian(bytes, value);
    raw(bytes);
  }
  void text(const std::string& text) {
    number(static_cast<uint16_t>(text.size() + 1));
    sink_(text.c_str(), text.size() + 1);
  }
  void raw(const std::string& bytes) { sink_(bytes.data(), bytes.size()); }

  void variable(const std::string& name, const CTranslate2Variable& variable) {
    text(name);
    const Shape shape = variable.tensor ? variable.tensor->shape : Shape{};
    number(static_cast<uint8_t>(shape.rank()));
    for (int i = 0; i < shape.rank(); ++i) number(static_cast<uint32_t>(shape[i]));
    number(variable.type);
    if (!variable.tensor) {
      number(static_cast<uint32_t>(variable.bytes.size()));
      return raw(variable.bytes);
    }
    const Tensor tensor = variable.tensor->content();
    number(static_cast<uint32_t>(variable.tensor->bytes()));
    if (as_dtype(variable.tensor->stored) == tensor.dtype()) {
      return sink_(tensor.raw(), static_cast<size_t>(tensor.bytes()));
    }
    raw(elements_as(variable.tensor->stored, tensor));
  }

 private:
  const ByteSink& sink_;
};

Json vocabulary(const Tokenizer& tokenizer) {
  Json pieces = Json::array();
  std::set<std::string> seen;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.piece(id);
    if (!seen.insert(piece).second) {
      fail(ErrorKind::kConfig, "[export] the vocabulary has '", piece,
           "' twice, CTranslate2 needs each piece once.");
    }
    pieces.push_back(piece);
  }
  return pieces;
}

Json their_config(const ModelFiles& model, bool both_sides) {
  const SpecialIds ids = special_ids(*model.tokenizers.target);
  const auto piece = [&](std::optional<int32_t> id) {
    return id ? model.tokenizers.target->piece(*id) : std::string();
  };
  Json config = {
      {"unk_token", piece(ids.unk)}, {"bos_token", piece(ids.bos)}, {"eos_token", piece(ids.eos)}};
  if (both_sides) {
    const tapestry::SpecialIds& target = model.tokenizers.target->special();
    config["decoder_start_token"] = piece(target.start.value_or(target.bos));
    const tapestry::SpecialIds& source = model.tokenizers.source->special();
    config["add_source_bos"] = source.side().before == std::vector<int32_t>{source.bos};
    config["add_source_eos"] = true;
  }
  config["layer_norm_epsilon"] = model.config.model.norm_eps;
  config["multi_query_attention"] = false;
  return config;
}

}  // namespace

std::vector<std::string> ctranslate2_notes(const ModelFiles& model) {
  std::vector<std::string> notes;
  const Tokenizer& source = *model.tokenizers.source;
  const Tokenizer& target = *model.tokenizers.target;
  const std::vector<int32_t>& more = target.special().more_ends;
  if (!more.empty()) {
    notes.push_back(concat(
        "config.json of CTranslate2 has one end of a text, '", target.piece(target.special().eos),
        "': a program must give the others as end_token: ", quoted_tokens(target, more)));
  }
  if (model.config.model_type != ModelType::kEncoderDecoder) return notes;
  const auto language_of = [](const Tokenizer& tokenizer, const std::vector<int32_t>& before) {
    for (const int32_t id : before) {
      if (tokenizer.special().is_language(id)) return tokenizer.piece(id);
    }
    return std::string();
  };
  const std::string read = language_of(source, source.special().side().before);
  const std::string written = language_of(target, target.special().target().before);
  if (!read.empty() || !written.empty()) {
    notes.push_back(concat(
        "CTranslate2 knows no languages: a program must begin each source with its token",
        read.empty() ? "" : concat(", here '", read, "'"), ", and give that of the translation as ",
        "target_prefix", written.empty() ? "" : concat(", here '", written, "'")));
  }
  return notes;
}

CheckpointContent ctranslate2_files(const ModelFiles& model, const std::string& dtype) {
  if (const Reasons reasons = reasons_against(model); !reasons.empty()) {
    fail(ErrorKind::kConfig, "[export] CTranslate2 has no place for:\n  ", join(reasons, ";\n  "),
         '.');
  }
  const bool both_sides = model.config.model_type == ModelType::kEncoderDecoder;
  CheckpointContent files;
  files[kConfigFile] = their_config(model, both_sides).dump(2) + "\n";
  const auto lists = [&](const char* name, const Tokenizer& tokenizer) {
    files[name] = vocabulary(tokenizer).dump(2) + "\n";
  };
  if (!both_sides) {
    lists("vocabulary.json", *model.tokenizers.source);
  } else if (model.tokenizers.shared()) {
    lists("shared_vocabulary.json", *model.tokenizers.source);
  } else {
    lists("source_vocabulary.json", *model.tokenizers.source);
    lists("target_vocabulary.json", *model.tokenizers.target);
  }
  for (auto& [name, bytes] : own_files(model.tokenizers)) files[name] = std::move(bytes);
  files["model.bin"] = [variables = ctranslate2_variables(model, dtype),
                        aliases = ctranslate2_aliases(model), both_sides](const ByteSink& sink) {
    Writer writer(sink);
    writer.number(kBinaryVersion);
    writer.text(both_sides ? "TransformerSpec" : "TransformerDecoderSpec");
    writer.number(uint32_t{both_sides ? 7u : 8u});  // revision
    writer.number(static_cast<uint32_t>(variables.size()));
    for (const auto& [name, variable] : variables) writer.variable(name, variable);
    writer.number(static_cast<uint32_t>(aliases.size()));
    for (const auto& [alias, name] : aliases) {
      writer.text(alias);
      writer.text(name);
    }
  };
  return files;
}

}  // namespace tapestry::interop
