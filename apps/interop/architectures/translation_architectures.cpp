// The encoder-decoders: they share their names, and differ in the places of norms and in their
// positions.
#include <array>

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {
namespace {

constexpr std::array<KeyRow, 15> keys(const char* activation, const char* dropout,
                                      const char* scaled) {
  return {{
      {"d_model", "hidden_size", "1024"},
      {"encoder_layers", "encoder_layers", "12"},
      {"decoder_layers", "decoder_layers", "12"},
      {"encoder_attention_heads", "num_attention_heads", "16"},
      {"decoder_attention_heads", "num_attention_heads", "16"},
      {"encoder_ffn_dim", "intermediate_size", "4096"},
      {"decoder_ffn_dim", "intermediate_size", "4096"},
      {"activation_function", "hidden_act", activation},
      {"dropout", "dropout", "0.1"},
      {"attention_dropout", "attention_dropout", dropout},
      {"activation_dropout", "activation_dropout", "0.0"},
      {"max_position_embeddings", "max_position_embeddings", "1024"},
      {"init_std", "initializer_range", "0.02"},
      {"scale_embedding", "scale_embeddings", scaled},
      {"tie_word_embeddings", "tie_word_embeddings", "true"},
  }};
}
constexpr auto kKeys = keys("\"gelu\"", "0.0", "false");
constexpr auto kM2m100Keys = keys("\"relu\"", "0.1", "true");
constexpr FixedOption kMarianOptions[] = {
    {"norm", "layernorm"},   {"norm_position", "post"}, {"position_embedding", "sinusoidal"},
    {"final_norm", "false"}, {"bias", "true", true},    {"embedding_norm", "false"},
    {"norm_eps", "1e-05"},
};
constexpr FixedOption kPegasusOptions[] = {
    {"norm", "layernorm"},  {"norm_position", "pre"}, {"position_embedding", "sinusoidal"},
    {"final_norm", "true"}, {"bias", "true", true},   {"embedding_norm", "false"},
    {"norm_eps", "1e-05"},
};
constexpr FixedOption kBartOptions[] = {
    {"norm", "layernorm"},   {"norm_position", "post"}, {"position_embedding", "learned"},
    {"final_norm", "false"}, {"bias", "true", true},    {"embedding_norm", "true"},
    {"norm_eps", "1e-05"},
};
constexpr FixedOption kMbartOptions[] = {
    {"norm", "layernorm"},  {"norm_position", "pre"}, {"position_embedding", "learned"},
    {"final_norm", "true"}, {"bias", "true", true},   {"embedding_norm", "true"},
    {"norm_eps", "1e-05"},
};

constexpr FixedOption kM2m100Options[] = {
    {"norm", "layernorm"},  {"norm_position", "pre"}, {"position_embedding", "sinusoidal_fairseq"},
    {"final_norm", "true"}, {"bias", "true", true},   {"embedding_norm", "false"},
    {"norm_eps", "1e-05"},
};
// marian's, with other defaults.
constexpr ClassDefault kMarianIds[] = {{"vocab_size", "58101"},
                                       {"pad_token_id", "58100"},
                                       {"eos_token_id", "0"},
                                       {"forced_eos_token_id", "0"},
                                       {"decoder_start_token_id", "58100"}};
constexpr ClassDefault kPegasusIds[] = {{"vocab_size", "50265"},
                                        {"pad_token_id", "0"},
                                        {"eos_token_id", "1"},
                                        {"forced_eos_token_id", "1"},
                                        {"decoder_start_token_id", "0"}};
constexpr ClassDefault kBartIds[] = {{"vocab_size", "50265"},      {"pad_token_id", "1"},
                                     {"bos_token_id", "0"},        {"eos_token_id", "2"},
                                     {"forced_eos_token_id", "2"}, {"decoder_start_token_id", "2"}};
constexpr ClassDefault kMbartIds[] = {{"vocab_size", "50265"},
                                      {"pad_token_id", "1"},
                                      {"bos_token_id", "0"},
                                      {"eos_token_id", "2"},
                                      {"forced_eos_token_id", "2"}};
// Their position of a token is that of the padding and the number of tokens up to it.
constexpr FixedKey kM2m100Fixed[] = {{"pad_token_id", "1", "1"}};
constexpr ClassDefault kM2m100Ids[] = {{"vocab_size", "128112"},
                                       {"pad_token_id", "1"},
                                       {"bos_token_id", "0"},
                                       {"eos_token_id", "2"},
                                       {"decoder_start_token_id", "2"}};

// One table for all five: the options leave out rows that a class does not have.
constexpr TensorRow kTensors[] = {
    {"model.shared.weight", "embedding.weight", "V", "D", Stream::kReads, Change::kNone,
     &ModelFacts::shared},
    {"model.encoder.embed_tokens.weight", "encoder.embedding.weight", "V", "D", Stream::kReads,
     Change::kNone, &ModelFacts::separate},
    {"model.decoder.embed_tokens.weight", "decoder.embedding.weight", "W", "D", Stream::kReads,
     Change::kNone, &ModelFacts::separate},
    {"model.$.embed_positions.weight", "$.positions.weight", "P", "D", Stream::kReads,
     Change::kTwoRows, &ModelFacts::learned},
    {"model.$.layernorm_embedding.*", "$.embedding_norm.*", "D", "", Stream::kWrites, Change::kNone,
     &ModelFacts::embedding_norm},
    {"model.$.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "$.layers.#.self_attention.qkv.*",
     "DKK", "D", Stream::kReads},
    {"model.$.layers.#.self_attn.out_proj.*", "$.layers.#.self_attention.out.*", "D", "D",
     Stream::kWrites},
    {"model.$.layers.#.self_attn_layer_norm.*", "$.layers.#.self_attention_norm.*", "D", "",
     Stream::kWrites},
    {"model.decoder.layers.#.encoder_attn.q_proj.*", "decoder.layers.#.cross_attention.q.*", "D",
     "D", Stream::kReads},
    {"model.decoder.layers.#.encoder_attn.{k_proj,v_proj}.*",
     "decoder.layers.#.cross_attention.kv.*", "KK", "D", Stream::kReads},
    {"model.decoder.layers.#.encoder_attn.out_proj.*", "decoder.layers.#.cross_attention.out.*",
     "D", "D", Stream::kWrites},
    {"model.decoder.layers.#.encoder_attn_layer_norm.*", "decoder.layers.#.cross_attention_norm.*",
     "D", "", Stream::kWrites},
    {"model.$.layers.#.fc1.*", "$.layers.#.feed_forward.up.*", "F", "D", Stream::kReads},
    {"model.$.layers.#.fc2.*", "$.layers.#.feed_forward.down.*", "D", "F", Stream::kWrites},
    {"model.$.layers.#.final_layer_norm.*", "$.layers.#.feed_forward_norm.*", "D", "",
     Stream::kWrites},
    {"model.$.layer_norm.*", "$.norm.*", "D", "", Stream::kWrites, Change::kNone,
     &ModelFacts::final_norm},
    {"lm_head.weight", "output.weight", "W", "D", Stream::kReads, Change::kNone,
     &ModelFacts::untied},
    {"final_logits_bias", "output.bias", "W", "", Stream::kNone, Change::kLeadingAxis, nullptr,
     true},
};

// m2m_100's logits have no bias, which is the last row.
constexpr std::span<const TensorRow> kM2m100Tensors =
    std::span(kTensors).first(std::size(kTensors) - 1);

const std::vector<const char*> kCopies = {"model.encoder.embed_tokens.weight",
                                          "model.decoder.embed_tokens.weight", "lm_head.weight",
                                          "model.shared.weight"};
const std::vector<std::pair<const char*, const char*>> kTied = {
    {"model.shared.weight", "model.encoder.embed_tokens.weight"},
    {"model.shared.weight", "model.decoder.embed_tokens.weight"},
    {"model.shared.weight", "lm_head.weight"}};
const std::vector<const char*> kPositions = {"model.encoder.embed_positions.weight",
                                             "model.decoder.embed_positions.weight"};

// Each side has its own table only in Marian's models.
void write_marian(const ModelFacts& facts, Json& theirs) {
  theirs["share_encoder_decoder_embeddings"] = facts.shared;
  theirs["decoder_vocab_size"] = facts.counts.target_vocab;
}

// What the classes of this family have in common.
Architecture of_family(Architecture one) {
  one.prefix = "model.";
  one.type = ModelType::kEncoderDecoder;
  if (one.keys.empty()) one.keys = kKeys;
  if (one.tensors.empty()) one.tensors = kTensors;
  if (one.skipped.empty()) one.skipped = kCopies;
  one.tied = kTied;
  one.only_trained = {"encoder_layerdrop", "decoder_layerdrop"};
  return one;
}

}  // namespace

extern const Architecture kMarian = of_family({.name = "marian",
                                               .classes = both_tasks("MarianMTModel"),
                                               .headless = "MarianModel",
                                               .options = kMarianOptions,
                                               .ids = kMarianIds,
                                               .sinusoids = true,
                                               .stored_sinusoids = kPositions,
                                               .write_more = write_marian});

extern const Architecture kPegasus =
    of_family({.name = "pegasus",
               .classes = both_tasks("PegasusForConditionalGeneration"),
               .headless = "PegasusModel",
               .options = kPegasusOptions,
               .ids = kPegasusIds,
               .sinusoids = true,
               .stored_sinusoids = kPositions,
               .writes_sinusoids = true});

extern const Architecture kBart = of_family({.name = "bart",
                                             .classes = both_tasks("BartForConditionalGeneration"),
                                             .headless = "BartModel",
                                             .options = kBartOptions,
                                             .ids = kBartIds});

extern const Architecture kMbart =
    of_family({.name = "mbart",
               .classes = both_tasks("MBartForConditionalGeneration"),
               .headless = "MBartModel",
               .options = kMbartOptions,
               .ids = kMbartIds});

// M2M100 and NLLB-200. Files of older releases hold the sinusoids, some with the wrong name of a
// buffer.
extern const Architecture kM2m100 = of_family(
    {.name = "m2m_100",
     .classes = both_tasks("M2M100ForConditionalGeneration"),
     .headless = "M2M100Model",
     .keys = kM2m100Keys,
     .fixed = kM2m100Fixed,
     .options = kM2m100Options,
     .ids = kM2m100Ids,
     .tensors = kM2m100Tensors,
     .skipped = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
                 "lm_head.weight", "model.shared.weight", "model.*coder.embed_positions.weight*"},
     .counts_from_padding = true});

}  // namespace tapestry::interop
