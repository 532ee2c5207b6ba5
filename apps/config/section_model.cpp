#include <algorithm>

#include "apps/config/sections.h"
#include "core/text.h"
#include "nn/vision_transformer.h"

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

// What recurrent and linear models have not.
void bind_attention_model(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  const ModelType type = config.model_type;
  const bool applies = type != ModelType::kRnnAttention && type != ModelType::kLinear;
  const bool images = reads_images(config);
  const std::string why = concat("with type: ", name_of(type));
  s.read_if(applies, why, "intermediate_size", model.intermediate_size, positive());
  s.read_if(applies, why, "num_attention_heads", model.num_attention_heads, positive());
  const bool latent = s.given("kv_latent_size") || model.kv_latent_size > 0;
  s.read_if(applies, why, "num_key_value_heads", model.num_key_value_heads, at_least(0));
  s.read_if(applies, why, "kv_latent_size", model.kv_latent_size, at_least(0));
  s.read_if(applies && latent, applies ? "without kv_latent_size" : why, "q_latent_size",
            model.q_latent_size, at_least(0));
  s.read_if(applies && latent, applies ? "without kv_latent_size" : why, "rope_head_size",
            model.rope_head_size, at_least(0));
  s.read_choice_if(applies, why, "hidden_act", model.hidden_act, named(hidden_acts()));
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
  s.read_if(!images, why, "max_position_embeddings", model.max_position_embeddings, positive());
  const bool segments = type == ModelType::kEncoder || type == ModelType::kDecoder;
  s.read_if(segments, images ? why : concat("with task: ", config.task->name), "type_vocab_size",
            model.type_vocab_size, at_least(0));
  s.read_if(applies && !images, why, "embedding_norm", model.embedding_norm);
  s.read_if(applies, why, "attention_dropout", model.attention_dropout, from_up_to_below(0, 1));
  s.read_if(applies, why, "activation_dropout", model.activation_dropout, from_up_to_below(0, 1));
  if (applies) check_model(s, model);
}

void bind_type(ConfigSection& s, Config& config) {
  const ModelType before = config.model_type;
  const std::vector<ModelType>& types = reads_images(config) && !config.task->image_models.empty()
                                            ? config.task->image_models
                                            : config.task->models;
  const auto fits = [&] {
    return std::find(types.begin(), types.end(), config.model_type) != types.end();
  };
  if (!fits()) config.model_type = types.front();
  s.read_choice("type", config.model_type, named(kModelTypes));
  if (!fits()) {
    std::vector<std::string> names;
    for (const ModelType type : types) names.emplace_back(name_of(type));
    const bool both = !config.task->image_models.empty();
    s.complain("type", "'model.type' must be ", join(names, " or "),
               " with task: ", config.task->name,
               !both                  ? ""
               : reads_images(config) ? " of images"
                                      : " of texts",
               ", got ", name_of(config.model_type), '.');
  }
  if (config.model_type == ModelType::kVit && before != ModelType::kVit) {
    config.model = vision_transformer_defaults();
  }
}

}  // namespace

void bind_model(ConfigSection& s, Config& config) {
  bind_type(s, config);
  ModelOptions& model = config.model;
  const TaskKind& task = *config.task;
  const bool both = task.models.front() == ModelType::kEncoderDecoder;
  const bool images = reads_images(config), linear = config.model_type == ModelType::kLinear;
  const std::string with_task = concat("with task: ", task.name);
  const std::string with_type = concat("with type: ", name_of(config.model_type));
  s.read_if(!linear, with_type, "hidden_size", model.hidden_size, positive());
  s.read_if(both, with_task, "encoder_layers", model.encoder_layers, positive());
  s.read_if(both, with_task, "decoder_layers", model.decoder_layers, positive());
  s.read_if(!both && !linear, linear ? with_type : with_task, "num_hidden_layers",
            model.num_hidden_layers, positive());
  if (images) bind_image_model(s, config);
  s.read_if(!images, with_type, "tie_word_embeddings", model.tie_word_embeddings);
  s.read_if(!images, with_type, "scale_embeddings", model.scale_embeddings);
  s.read("initializer_range", model.initializer_range, at_least(0));
  s.read_if(!linear, with_type, "dropout", model.dropout, from_up_to_below(0, 1));
  bind_attention_model(s, config);
  if (images) return;
  const bool blocks = task.reads_blocks;
  const int64_t longest = blocks ? config.data.block_size : config.data.corpus.max_length;
  if (longest > model.max_position_embeddings) {
    s.complain("max_position_embeddings", "'model.max_position_embeddings' must be at least data.",
               blocks ? "block_size" : "max_length", ", got ", model.max_position_embeddings,
               " and ", longest, '.');
  }
}

}  // namespace tapestry
