// BERT, RoBERTa, XLM-R, CamemBERT and ELECTRA, with the heads that fill masks and that classify.
#include <array>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

// `more`: rows of the positions that belong to no token.
constexpr std::array<KeyRow, 12> keys(int64_t more) {
  return {{
      {"hidden_size", "hidden_size", "768"},
      {"num_hidden_layers", "num_hidden_layers", "12"},
      {"num_attention_heads", "num_attention_heads", "12"},
      {"intermediate_size", "intermediate_size", "3072"},
      {"hidden_act", "hidden_act", "\"gelu\""},
      {"hidden_dropout_prob", "dropout", "0.1"},
      {"attention_probs_dropout_prob", "attention_dropout", "0.1"},
      {"max_position_embeddings", "max_position_embeddings", "512", more},
      {"type_vocab_size", "type_vocab_size", "2"},
      {"layer_norm_eps", "norm_eps", "1e-12"},
      {"initializer_range", "initializer_range", "0.02"},
      {"tie_word_embeddings", "tie_word_embeddings", "true"},
  }};
}
constexpr auto kBertKeys = keys(0);
constexpr auto electra_keys() {
  auto all = keys(0);
  all[0].fallback = "256";  // hidden_size
  all[2].fallback = "4";    // num_attention_heads
  all[3].fallback = "1024";
  return all;
}
constexpr auto kElectraKeys = electra_keys();
// Theirs count from the padding's id on, which is 1.
constexpr auto kRobertaKeys = keys(2);
constexpr FixedKey kFixed[] = {
    {"position_embedding_type", "\"absolute\"", "\"absolute\""},
    {"is_decoder", "false", "false"},
    {"add_cross_attention", "false", "false"},
};
// Their positions begin behind the id of the padding, so that its table has two rows more than
// ours.
constexpr FixedKey kRobertaFixed[] = {
    {"position_embedding_type", "\"absolute\"", "\"absolute\""},
    {"is_decoder", "false", "false"},
    {"add_cross_attention", "false", "false"},
    {"pad_token_id", "1", "1"},
};
constexpr ClassDefault kBertIds[] = {{"vocab_size", "30522"}, {"pad_token_id", "0"}};
constexpr ClassDefault kRobertaIds[] = {
    {"vocab_size", "50265"}, {"pad_token_id", "1"}, {"bos_token_id", "0"}, {"eos_token_id", "2"}};
constexpr ClassDefault kXlmRobertaIds[] = {
    {"vocab_size", "30522"}, {"pad_token_id", "1"}, {"bos_token_id", "0"}, {"eos_token_id", "2"}};
constexpr FixedOption kOptions[] = {
    {"norm", "layernorm"},      {"norm_position", "post"}, {"position_embedding", "learned"},
    {"final_norm", "false"},    {"bias", "true", true},    {"scale_embeddings", "false", true},
    {"embedding_norm", "true"},
};

constexpr TensorRow kEncoder[] = {
    {"^embeddings.word_embeddings.weight", "embedding.weight", "V", "E"},
    {"^embeddings.token_type_embeddings.weight", "segments.weight", "T", "E", Stream::kNone,
     Change::kNone, nullptr, true},
    {"^embeddings.LayerNorm.*", "embedding_norm.*", "E"},
    {"^embeddings_project.*", "embedding_projection.*", "D", "E", Stream::kNone, Change::kNone,
     &ModelFacts::widened},
    {"^encoder.layer.#.attention.self.{query,key,value}.*", "layers.#.self_attention.qkv.*", "DKK",
     "D"},
    {"^encoder.layer.#.attention.output.dense.*", "layers.#.self_attention.out.*", "D", "D"},
    {"^encoder.layer.#.attention.output.LayerNorm.*", "layers.#.self_attention_norm.*", "D"},
    {"^encoder.layer.#.intermediate.dense.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"^encoder.layer.#.output.dense.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"^encoder.layer.#.output.LayerNorm.*", "layers.#.feed_forward_norm.*", "D"},
};
constexpr TensorRow kBertTensors[] = {
    {"^embeddings.position_embeddings.weight", "positions.weight", "P", "D"},
    {"cls.predictions.transform.dense.*", "head.dense.*", "D", "D", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"cls.predictions.transform.LayerNorm.*", "head.norm.*", "D", "", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"cls.predictions.bias", "head.bias", "V", "", Stream::kNone, Change::kNone,
     &ModelFacts::fills_tied},
    {"cls.predictions.decoder.bias", "head.bias", "V", "", Stream::kNone, Change::kNone,
     &ModelFacts::fills_untied},
    {"cls.predictions.decoder.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::fills_untied},
    {"^pooler.dense.*", "pooler.*", "D", "D", Stream::kNone, Change::kNone, &ModelFacts::pooled},
    {"classifier.*", "classifier.*", "C", "D", Stream::kNone, Change::kNone,
     &ModelFacts::classifies},
    {"qa_outputs.*", "span_head.*", "2", "D", Stream::kNone, Change::kNone,
     &ModelFacts::finds_spans},
    {"classifier.*", "token_head.*", "C", "D", Stream::kNone, Change::kNone, &ModelFacts::tags},
};
constexpr TensorRow kRobertaTensors[] = {
    {"^embeddings.position_embeddings.weight", "positions.weight", "P", "D", Stream::kNone,
     Change::kTwoRows},
    {"lm_head.dense.*", "head.dense.*", "D", "D", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"lm_head.layer_norm.*", "head.norm.*", "D", "", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"lm_head.bias", "head.bias", "V", "", Stream::kNone, Change::kNone, &ModelFacts::fills_tied},
    {"lm_head.decoder.bias", "head.bias", "V", "", Stream::kNone, Change::kNone,
     &ModelFacts::fills_untied},
    {"lm_head.decoder.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::fills_untied},
    {"classifier.dense.*", "pooler.*", "D", "D", Stream::kNone, Change::kNone, &ModelFacts::pooled},
    {"classifier.out_proj.*", "classifier.*", "C", "D", Stream::kNone, Change::kNone,
     &ModelFacts::classifies},
    {"qa_outputs.*", "span_head.*", "2", "D", Stream::kNone, Change::kNone,
     &ModelFacts::finds_spans},
    {"classifier.*", "token_head.*", "C", "D", Stream::kNone, Change::kNone, &ModelFacts::tags},
};

constexpr TensorRow kElectraTensors[] = {
    {"^embeddings.position_embeddings.weight", "positions.weight", "P", "E"},
    {"generator_predictions.dense.*", "head.dense.*", "E", "D", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"generator_predictions.LayerNorm.*", "head.norm.*", "E", "", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"generator_lm_head.bias", "head.bias", "V", "", Stream::kNone, Change::kNone,
     &ModelFacts::masked},
    {"generator_lm_head.weight", "output.weight", "V", "E", Stream::kNone, Change::kNone,
     &ModelFacts::fills_untied},
    {"classifier.dense.*", "pooler.*", "D", "D", Stream::kNone, Change::kNone, &ModelFacts::pooled},
    {"classifier.out_proj.*", "classifier.*", "C", "D", Stream::kNone, Change::kNone,
     &ModelFacts::classifies},
    {"qa_outputs.*", "span_head.*", "2", "D", Stream::kNone, Change::kNone,
     &ModelFacts::finds_spans},
    {"classifier.*", "token_head.*", "C", "D", Stream::kNone, Change::kNone, &ModelFacts::tags},
};
constexpr FixedOption kElectraOptions[] = {
    {"norm", "layernorm"},      {"norm_position", "post"}, {"position_embedding", "learned"},
    {"final_norm", "false"},    {"bias", "true", true},    {"scale_embeddings", "false", true},
    {"embedding_norm", "true"}, {"pooler", "gelu"},
};

// Narrow embeddings that a matrix widens; without it if they are as wide.
void read_electra(const Json& theirs, Json& model, Reasons& reasons) {
  const int64_t size = number_of(theirs, "embedding_size", 128, reasons);
  model["embedding_size"] = model.at("hidden_size") == size ? 0 : size;
}

void write_electra(const ModelFacts& facts, Json& theirs) {
  theirs["embedding_size"] = facts.config.model.embedding_width();
}

void refuse_electra(const Config& config, Reasons& reasons) {
  const ModelOptions& model = config.model;
  if (model.embedding_size != model.hidden_size) return;
  reasons.push_back(concat("model.embedding_size: ", model.embedding_size,
                           ", as hidden_size, has no place in electra, which has no matrix then"));
}

// RoBERTa and those that differ by their vocabulary only.
Architecture of_family(Architecture one) {
  one.prefix = "roberta.";
  one.type = ModelType::kEncoder;
  one.keys = kRobertaKeys;
  one.fixed = kRobertaFixed;
  one.options = kOptions;
  one.tensors = kEncoder;
  one.own_tensors = kRobertaTensors;
  one.skipped = {"roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids",
                 "roberta.pooler.*", "lm_head.decoder.*", "lm_head.bias"};
  one.tied = {{"roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"},
              {"lm_head.bias", "lm_head.decoder.bias"},
              {"lm_head.decoder.bias", "lm_head.bias"}};
  one.written_twice = {{"lm_head.decoder.bias", "lm_head.bias"}};
  one.only_activation = "gelu";  // of its head whatever the layers have; ours has the layers'
  one.only_trained = {"classifier_dropout"};
  one.counts_from_padding = true;
  return one;
}

}  // namespace

extern const Architecture kBert = {
    .name = "bert",
    .prefix = "bert.",
    .type = ModelType::kEncoder,
    .classes = {{"mlm", "BertForMaskedLM"},
                {"mlm", "BertForPreTraining"},
                {"classification", "BertForSequenceClassification"},
                {"multi_label", "BertForSequenceClassification"},
                {"text_regression", "BertForSequenceClassification"},
                {"question_answering", "BertForQuestionAnswering"},
                {"token_classification", "BertForTokenClassification"}},
    .headless = "BertModel",
    .keys = kBertKeys,
    .fixed = kFixed,
    .options = kOptions,
    .ids = kBertIds,
    .tensors = kEncoder,
    .own_tensors = kBertTensors,
    .skipped = {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids", "bert.pooler.*",
                "cls.predictions.decoder.*", "cls.predictions.bias", "cls.seq_relationship.*"},
    .tied = {{"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
             {"cls.predictions.bias", "cls.predictions.decoder.bias"},
             {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
    .written_twice = {{"cls.predictions.decoder.bias", "cls.predictions.bias"}},
    .only_trained = {"classifier_dropout"},
};

extern const Architecture kRoberta =
    of_family({.name = "roberta",
               .classes = {{"mlm", "RobertaForMaskedLM"},
                           {"classification", "RobertaForSequenceClassification"},
                           {"multi_label", "RobertaForSequenceClassification"},
                           {"text_regression", "RobertaForSequenceClassification"},
                           {"question_answering", "RobertaForQuestionAnswering"},
                           {"token_classification", "RobertaForTokenClassification"}},
               .headless = "RobertaModel",
               .ids = kRobertaIds});

extern const Architecture kXlmRoberta =
    of_family({.name = "xlm-roberta",
               .classes = {{"mlm", "XLMRobertaForMaskedLM"},
                           {"classification", "XLMRobertaForSequenceClassification"},
                           {"multi_label", "XLMRobertaForSequenceClassification"},
                           {"text_regression", "XLMRobertaForSequenceClassification"},
                           {"question_answering", "XLMRobertaForQuestionAnswering"},
                           {"token_classification", "XLMRobertaForTokenClassification"}},
               .headless = "XLMRobertaModel",
               .ids = kXlmRobertaIds});

extern const Architecture kCamembert =
    of_family({.name = "camembert",
               .classes = {{"mlm", "CamembertForMaskedLM"},
                           {"classification", "CamembertForSequenceClassification"},
                           {"multi_label", "CamembertForSequenceClassification"},
                           {"text_regression", "CamembertForSequenceClassification"},
                           {"question_answering", "CamembertForQuestionAnswering"},
                           {"token_classification", "CamembertForTokenClassification"}},
               .headless = "CamembertModel",
               .ids = kXlmRobertaIds});

extern const Architecture kElectra = {
    .name = "electra",
    .prefix = "electra.",
    .type = ModelType::kEncoder,
    .classes = {{"mlm", "ElectraForMaskedLM"},
                {"mlm", "ElectraForPreTraining"},  // the discriminator, whose head stays behind
                {"classification", "ElectraForSequenceClassification"},
                {"multi_label", "ElectraForSequenceClassification"},
                {"text_regression", "ElectraForSequenceClassification"},
                {"question_answering", "ElectraForQuestionAnswering"},
                {"token_classification", "ElectraForTokenClassification"}},
    .headless = "ElectraModel",
    .keys = kElectraKeys,
    .fixed = kFixed,
    .options = kElectraOptions,
    .ids = kBertIds,
    .tensors = kEncoder,
    .own_tensors = kElectraTensors,
    .skipped = {"electra.embeddings.position_ids", "electra.embeddings.token_type_ids",
                "discriminator_predictions.*", "generator_lm_head.weight"},
    .tied = {{"electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"}},
    .only_activation = "gelu",  // of its heads whatever the layers have
    .only_trained = {"classifier_dropout"},
    .carried = {"embedding_size"},
    .read_more = read_electra,
    .write_more = write_electra,
    .refuse_more = refuse_electra,
};

}  // namespace tapestry::interop
