#include "apps/config_sections.h"

namespace tapestry {
namespace {

void check_model(ConfigSection& s, const ModelOptions& model) {
  const int64_t heads = model.num_attention_heads;
  const int64_t groups = model.num_key_value_heads == 0 ? heads : model.num_key_value_heads;
  if (heads > 0 && model.hidden_size % heads != 0) {
    s.complain("hidden_size", "'model.hidden_size' must be divisible by num_attention_heads, got ",
               model.hidden_size, " and ", heads, '.');
  }
  if (groups > 0 && heads % groups != 0) {
    s.complain("num_key_value_heads",
               "'model.num_key_value_heads' must divide num_attention_heads, got ", groups, " and ",
               heads, '.');
  }
  const bool rope = model.position_embedding == PositionEmbedding::kRope;
  if (rope && heads > 0 && model.hidden_size % heads == 0 && model.hidden_size / heads % 2 != 0) {
    s.complain("hidden_size", "'model.hidden_size' must give heads of even size for rope, got ",
               model.hidden_size, " and ", heads, " heads.");
  }
  const bool sinusoidal = model.position_embedding == PositionEmbedding::kSinusoidal;
  if (sinusoidal && model.hidden_size % 2 != 0) {
    s.complain("hidden_size", "'model.hidden_size' must be even for sinusoidal positions, got ",
               model.hidden_size, '.');
  }
}

}  // namespace

void bind_model(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const Task task = config.task;
  const bool both = task == Task::kTranslation || task == Task::kDenoising;
  ModelType needed = task == Task::kClm ? ModelType::kDecoder : ModelType::kEncoder;
  if (both) needed = ModelType::kEncoderDecoder;
  config.model_type = needed;
  s.read_choice("type", config.model_type,
                {{"encoder_decoder", ModelType::kEncoderDecoder},
                 {"encoder", ModelType::kEncoder},
                 {"decoder", ModelType::kDecoder},
                 {"rnn_attention", ModelType::kEncoderDecoder, false},
                 {"vit", ModelType::kEncoder, false}});
  if (config.model_type != needed) {
    s.complain("type", "'model.type' must be ", name_of(needed), " with task: ", name_of(task),
               ", got ", name_of(config.model_type), '.');
  }
  s.read("hidden_size", model.hidden_size, positive());
  s.read("intermediate_size", model.intermediate_size, positive());
  s.read("num_attention_heads", model.num_attention_heads, positive());
  s.read("num_key_value_heads", model.num_key_value_heads, at_least(0));
  const std::string why = concat("with task: ", name_of(task));
  s.read_if(both, why, "encoder_layers", model.encoder_layers, positive());
  s.read_if(both, why, "decoder_layers", model.decoder_layers, positive());
  s.read_if(!both, why, "num_hidden_layers", model.num_hidden_layers, positive());
  s.read_choice("hidden_act", model.hidden_act,
                {{"relu", {Activation::kRelu}},
                 {"gelu", {Activation::kGelu}},
                 {"gelu_tanh", {Activation::kGeluTanh}},
                 {"silu", {Activation::kSilu}},
                 {"swiglu", {Activation::kSilu, /*gated=*/true}},
                 {"geglu", {Activation::kGelu, /*gated=*/true}}});
  s.read_choice("norm", model.norm, {{"layernorm", NormKind::kLayer}, {"rmsnorm", NormKind::kRms}});
  s.read_choice("norm_position", model.norm_position,
                {{"post", NormPosition::kPost}, {"pre", NormPosition::kPre}});
  s.read("norm_eps", model.norm_eps, positive());
  s.read("bias", model.bias);
  s.read_choice("position_embedding", model.position_embedding,
                {{"sinusoidal", PositionEmbedding::kSinusoidal},
                 {"learned", PositionEmbedding::kLearned},
                 {"rope", PositionEmbedding::kRope},
                 {"none", PositionEmbedding::kNone}});
  const bool rope = model.position_embedding == PositionEmbedding::kRope;
  s.read_if(rope, "without position_embedding: rope", "rope_theta", model.rope_theta, positive());
  s.read_choice_if(rope, "without position_embedding: rope", "rope_layout", model.rope_layout,
                   {{"half", RopeLayout::kHalf}, {"interleaved", RopeLayout::kInterleaved}});
  s.read("max_position_embeddings", model.max_position_embeddings, positive());
  s.read_if(!both, why, "type_vocab_size", model.type_vocab_size, at_least(0));
  s.read("embedding_norm", model.embedding_norm);
  s.read("tie_word_embeddings", model.tie_word_embeddings);
  s.read("scale_embeddings", model.scale_embeddings);
  s.read("initializer_range", model.initializer_range, at_least(0));
  s.read("dropout", model.dropout, from_up_to_below(0, 1));
  s.read("attention_dropout", model.attention_dropout, from_up_to_below(0, 1));
  s.read("activation_dropout", model.activation_dropout, from_up_to_below(0, 1));
  check_model(s, model);
  const bool blocks = reads_blocks(task);
  const int64_t longest = blocks ? config.data.block_size : config.data.corpus.max_length;
  if (longest > model.max_position_embeddings) {
    s.complain("max_position_embeddings", "'model.max_position_embeddings' must be at least data.",
               blocks ? "block_size" : "max_length", ", got ", model.max_position_embeddings,
               " and ", longest, '.');
  }
}

}  // namespace tapestry
