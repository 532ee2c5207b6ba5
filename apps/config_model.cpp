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
  if (model.kv_latent_size > 0) {
    try {
      latent_attention_options(model, /*branches=*/1);
    } catch (const Error& error) {
      s.complain("kv_latent_size", error.what());
    }
  }
  const bool sinusoidal = model.position_embedding == PositionEmbedding::kSinusoidal;
  if (sinusoidal && model.hidden_size % 2 != 0) {
    s.complain("hidden_size", "'model.hidden_size' must be even for sinusoidal positions, got ",
               model.hidden_size, '.');
  }
}

// What a recurrent model has not.
void bind_attention_model(ConfigSection& s, ModelOptions& model, bool applies, bool one_sequence,
                          const std::string& task) {
  const std::string why = "with type: rnn_attention";
  s.read_if(applies, why, "intermediate_size", model.intermediate_size, positive());
  s.read_if(applies, why, "num_attention_heads", model.num_attention_heads, positive());
  const bool latent = s.given("kv_latent_size") || model.kv_latent_size > 0;
  s.read_if(applies, why, "num_key_value_heads", model.num_key_value_heads, at_least(0));
  s.read_if(applies, why, "kv_latent_size", model.kv_latent_size, at_least(0));
  s.read_if(applies && latent, applies ? "without kv_latent_size" : why, "q_latent_size",
            model.q_latent_size, at_least(0));
  s.read_if(applies && latent, applies ? "without kv_latent_size" : why, "rope_head_size",
            model.rope_head_size, at_least(0));
  s.read_choice_if(applies, why, "hidden_act", model.hidden_act,
                   {{"relu", {Activation::kRelu}},
                    {"gelu", {Activation::kGelu}},
                    {"gelu_tanh", {Activation::kGeluTanh}},
                    {"silu", {Activation::kSilu}},
                    {"swiglu", {Activation::kSilu, /*gated=*/true}},
                    {"geglu", {Activation::kGelu, /*gated=*/true}}});
  s.read_choice_if(applies, why, "norm", model.norm,
                   {{"layernorm", NormKind::kLayer},
                    {"rmsnorm", NormKind::kRms},
                    {"batchnorm", NormKind::kBatch}});
  s.read_choice_if(applies, why, "norm_position", model.norm_position,
                   {{"post", NormPosition::kPost}, {"pre", NormPosition::kPre}});
  s.read_if(applies, why, "norm_eps", model.norm_eps, positive());
  s.read_if(applies, why, "bias", model.bias);
  s.read_choice_if(applies, why, "position_embedding", model.position_embedding,
                   {{"sinusoidal", PositionEmbedding::kSinusoidal},
                    {"learned", PositionEmbedding::kLearned},
                    {"rope", PositionEmbedding::kRope},
                    {"none", PositionEmbedding::kNone}});
  const bool rope = applies && model.position_embedding == PositionEmbedding::kRope;
  s.read_if(rope, "without position_embedding: rope", "rope_theta", model.rope_theta, positive());
  s.read_choice_if(rope, "without position_embedding: rope", "rope_layout", model.rope_layout,
                   {{"half", RopeLayout::kHalf}, {"interleaved", RopeLayout::kInterleaved}});
  s.read("max_position_embeddings", model.max_position_embeddings, positive());
  s.read_if(one_sequence, task, "type_vocab_size", model.type_vocab_size, at_least(0));
  s.read_if(applies, why, "embedding_norm", model.embedding_norm);
  s.read_if(applies, why, "attention_dropout", model.attention_dropout, from_up_to_below(0, 1));
  s.read_if(applies, why, "activation_dropout", model.activation_dropout, from_up_to_below(0, 1));
}

}  // namespace

void bind_model(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const Task task = config.task;
  const bool both = task == Task::kTranslation || task == Task::kDenoising;
  ModelType needed = task == Task::kClm ? ModelType::kDecoder : ModelType::kEncoder;
  if (both) needed = ModelType::kEncoderDecoder;
  const bool recurrent_already = both && config.model_type == ModelType::kRnnAttention;
  if (!recurrent_already) config.model_type = needed;
  s.read_choice("type", config.model_type,
                {{"encoder_decoder", ModelType::kEncoderDecoder},
                 {"encoder", ModelType::kEncoder},
                 {"decoder", ModelType::kDecoder},
                 {"rnn_attention", ModelType::kRnnAttention},
                 {"vit", ModelType::kEncoder, false}});
  const bool recurrent = config.model_type == ModelType::kRnnAttention;
  if (config.model_type != needed && !(recurrent && both)) {
    s.complain("type", "'model.type' must be ", name_of(needed), both ? " or rnn_attention" : "",
               " with task: ", name_of(task), ", got ", name_of(config.model_type), '.');
  }
  const std::string why = concat("with task: ", name_of(task));
  s.read("hidden_size", model.hidden_size, positive());
  s.read_if(both, why, "encoder_layers", model.encoder_layers, positive());
  s.read_if(both, why, "decoder_layers", model.decoder_layers, positive());
  s.read_if(!both, why, "num_hidden_layers", model.num_hidden_layers, positive());
  s.read("tie_word_embeddings", model.tie_word_embeddings);
  s.read("scale_embeddings", model.scale_embeddings);
  s.read("initializer_range", model.initializer_range, at_least(0));
  s.read("dropout", model.dropout, from_up_to_below(0, 1));
  bind_attention_model(s, model, !recurrent, !both && !recurrent, why);
  if (!recurrent) check_model(s, model);
  const bool blocks = reads_blocks(task);
  const int64_t longest = blocks ? config.data.block_size : config.data.corpus.max_length;
  if (longest > model.max_position_embeddings) {
    s.complain("max_position_embeddings", "'model.max_position_embeddings' must be at least data.",
               blocks ? "block_size" : "max_length", ", got ", model.max_position_embeddings,
               " and ", longest, '.');
  }
}

}  // namespace tapestry
