#include "apps/interop/architectures/model_facts.h"

namespace tapestry::interop {

int64_t outputs_of(const Config& config) {
  return config.task->can(kRatesTexts) ? 1 : std::ssize(config.data.labels);
}

bool reads_whole(const Config& config) {
  return examples_of(config).has_classes || config.task->can(kRatesTexts) ||
         config.task->can(kEmbedsTexts);
}

ModelFacts::ModelFacts(const Config& given, const Counts& counts) : config(given), counts(counts) {
  const ModelOptions& model = config.model;
  both_sides = config.model_type == ModelType::kEncoderDecoder;
  tied = model.tie_word_embeddings;
  untied = !tied;
  shared = both_sides && (tied || model.share_encoder_decoder_embeddings) && counts.shared_vocab;
  separate = both_sides && !shared;
  learned = model.position_embedding == PositionEmbedding::kLearned;
  relative = model.position_embedding == PositionEmbedding::kRelative;
  final_norm = model.has_final_norm();
  embedding_norm = model.embedding_norm;
  segments = model.type_vocab_size > 0;
  output_bias = model.output_bias;
  gated = model.hidden_act.gated;
  plain = !gated;
  for (const Ability one : {kClassifies, kFindsClasses, kRatesTexts}) {
    classifies |= config.task->can(one);
  }
  finds_spans = config.task->can(kFindsAnswers);
  tags = config.task->can(kLabelsWords);
  masked = config.model_type == ModelType::kEncoder && config.task->can(kFillsMasks);
  fills_tied = masked && tied;
  fills_untied = masked && untied;
  pre = model.norm_position == NormPosition::kPre;
  sandwich = model.norm_position == NormPosition::kSandwich;
  branch = model.norm_position == NormPosition::kBranch;
  normed_heads = model.qk_norm == QkNorm::kHead;
  normed_projections = model.qk_norm == QkNorm::kProjection;
  pooled_tokens = (finds_spans || tags) && model.pooled_tokens;
  widened = model.embedding_size > 0;
  pooled = classifies && (config.model_type != ModelType::kVit || model.pooled_head);
}

int64_t ModelFacts::size(char letter) const {
  const ModelOptions& model = config.model;
  const int64_t heads = std::max<int64_t>(1, model.num_attention_heads);
  const int64_t groups = model.num_key_value_heads > 0 ? model.num_key_value_heads : heads;
  const ImageSize& image = config.data.image.size;
  switch (letter) {
    case 'V':
      return counts.source_vocab;
    case 'W':
      return counts.target_vocab;
    case 'D':
      return model.hidden_size;
    case 'E':
      return model.embedding_width();
    case 'F':
      return model.intermediate_size;
    case 'Q':
      return heads * model.chosen_head_size();
    case 'K':
      return groups * model.chosen_head_size();
    case 'H':
      return model.chosen_head_size();
    case 'P':
      return config.model_type == ModelType::kVit
                 ? (model.distillation_token ? 2 : 1) +
                       (image.height / model.patch_size) * (image.width / model.patch_size)
                 : model.max_position_embeddings;
    case 'T':
      return model.type_vocab_size;
    case 'C':
      return counts.classes;
    case 'I':
      return model.patch_size * model.patch_size * image.channels;
    case 'B':
      return model.relative_attention_num_buckets;
    case 'N':
      return heads;
    case '1':
      return 1;
    case '2':
      return 2;
    default:
      break;
  }
  fail(ErrorKind::kRuntime, "[interop] no size is called '", std::string(1, letter), "'.");
}

bool ModelFacts::has_bias(const std::string& ours) const {
  if (ours.find("self_attention.qkv.") != std::string::npos) return query_biases.value_or(biases);
  if (ours.find("self_attention.out.") != std::string::npos) {
    return attention_out_biases.value_or(biases);
  }
  return biases;
}

int64_t ModelFacts::layers_of(const std::string& ours) const {
  if (ours.starts_with("encoder.") && both_sides) return config.model.encoder_layers;
  if (ours.starts_with("decoder.")) return config.model.decoder_layers;
  return config.model.num_hidden_layers;
}

}  // namespace tapestry::interop
