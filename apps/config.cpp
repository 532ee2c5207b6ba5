#include "apps/config.h"

#include "apps/config_reader.h"

namespace tapestry {
namespace {

/// Choices that are their own values.
std::vector<ConfigChoice<std::string>> names(std::initializer_list<const char*> list) {
  std::vector<ConfigChoice<std::string>> choices;
  for (const char* name : list) choices.push_back({name, name});
  return choices;
}

void bind_corpus(ConfigSection& s, CorpusSpec& corpus) {
  const bool tsv = s.has("tsv") || !corpus.tsv.empty();
  const bool ding = s.has("ding") || !corpus.ding.empty();
  const bool pair = s.has("source") || s.has("target") || !corpus.source.empty();
  if (tsv + ding + pair > 1) {
    s.complain(tsv ? "tsv" : "ding", '\'', s.full_name(tsv ? "tsv" : "ding"),
               "' excludes the others: give either source and target, or tsv, or ding.");
  }
  if (ding) {
    s.read_input_file("ding", corpus.ding);
    s.read_choice("direction", corpus.direction, names({"de-en", "en-de"}));
    s.read_choice("split", corpus.split, names({"all", "train", "valid", "test"}));
  }
  if (tsv) {
    s.read_input_file("tsv", corpus.tsv);
    s.read("source_column", corpus.source_column, at_least(1));
    s.read("target_column", corpus.target_column, at_least(1));
    if (corpus.source_column == corpus.target_column) {
      s.complain("target_column", '\'', s.full_name("target_column"),
                 "' must differ from source_column, got ", corpus.target_column, " twice.");
    }
  }
  if (pair || !(tsv || ding)) {
    if (pair) {
      s.demand("source");
      s.demand("target");
    } else {
      s.complain("", '\'', s.full_name("source"),
                 "' is missing: give source and target, or tsv, or ding.");
    }
    s.read_input_file("source", corpus.source);
    s.read_input_file("target", corpus.target);
  }
  s.read("limit", corpus.limit, at_least(0));
}

void bind_data(ConfigSection& s, DataOptions& data) {
  s.demand("train");
  s.section_list("train", data.train, bind_corpus);
  if (s.given("train") && data.train.empty()) {
    s.complain("train", "'data.train' must name a corpus, got none.");
  }
  s.section_list("valid", data.valid, bind_corpus);
  s.read("max_length", data.corpus.max_length, at_least(2));
  s.read_choice("overlong", data.corpus.overlong, names({"drop", "truncate", "error"}));
}

void bind_tokenizer(ConfigSection& s, TokenizerOptions& tokenizer) {
  s.read_choice("type", tokenizer.type, names({"sentencepiece"}));
  s.read_choice("algorithm", tokenizer.algorithm, names({"bpe", "unigram", "char"}));
  s.read("vocab_size", tokenizer.vocab_size, between(8, 1 << 24));
  s.read("share", tokenizer.share);
  s.read("character_coverage", tokenizer.character_coverage, between(0.98, 1));
  s.read("byte_fallback", tokenizer.byte_fallback);
  s.read_choice("normalization", tokenizer.normalization,
                names({"nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"}));
  s.read("max_sentences", tokenizer.max_sentences, at_least(0));
  if (tokenizer.byte_fallback && tokenizer.vocab_size < 261) {
    s.complain("vocab_size", "'tokenizer.vocab_size' must be at least 261 with byte_fallback, got ",
               tokenizer.vocab_size, '.');
  }
}

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
  const bool sinusoidal = model.position_embedding == PositionEmbedding::kSinusoidal;
  if (sinusoidal && model.hidden_size % 2 != 0) {
    s.complain("hidden_size", "'model.hidden_size' must be even for sinusoidal positions, got ",
               model.hidden_size, '.');
  }
}

void bind_model(ConfigSection& s, Config& config) {
  ModelOptions& model = config.model;
  s.read_choice("type", config.model_type,
                {{"encoder_decoder", ModelType::kEncoderDecoder},
                 {"encoder", ModelType::kEncoderDecoder, false},
                 {"decoder", ModelType::kEncoderDecoder, false},
                 {"rnn_attention", ModelType::kEncoderDecoder, false},
                 {"vit", ModelType::kEncoderDecoder, false}});
  s.read("hidden_size", model.hidden_size, positive());
  s.read("intermediate_size", model.intermediate_size, positive());
  s.read("num_attention_heads", model.num_attention_heads, positive());
  s.read("num_key_value_heads", model.num_key_value_heads, at_least(0));
  s.read("encoder_layers", model.encoder_layers, positive());
  s.read("decoder_layers", model.decoder_layers, positive());
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
  s.read_choice("position_embedding", model.position_embedding,
                {{"sinusoidal", PositionEmbedding::kSinusoidal},
                 {"learned", PositionEmbedding::kLearned},
                 {"none", PositionEmbedding::kNone},
                 {"rope", PositionEmbedding::kNone, false}});
  s.read("max_position_embeddings", model.max_position_embeddings, positive());
  s.read("tie_word_embeddings", model.tie_word_embeddings);
  s.read("scale_embeddings", model.scale_embeddings);
  s.read("dropout", model.dropout, from_up_to_below(0, 1));
  s.read("attention_dropout", model.attention_dropout, from_up_to_below(0, 1));
  s.read("activation_dropout", model.activation_dropout, from_up_to_below(0, 1));
  check_model(s, model);
}

// The rule comes first: eps and weight_decay have another default for each.
void bind_optimizer(ConfigSection& s, OptimizerOptions& optimizer) {
  OptimizerType type = optimizer.type;
  s.read_choice("name", type,
                {{"sgd", OptimizerType::kSgd},
                 {"momentum", OptimizerType::kMomentum},
                 {"nesterov", OptimizerType::kNesterov},
                 {"adagrad", OptimizerType::kAdagrad},
                 {"rmsprop", OptimizerType::kRmsprop},
                 {"adadelta", OptimizerType::kAdadelta},
                 {"adam", OptimizerType::kAdam},
                 {"adamw", OptimizerType::kAdamW}});
  if (type != optimizer.type) optimizer = optimizer_defaults(type);
  const bool momentum = type == OptimizerType::kMomentum || type == OptimizerType::kNesterov;
  const bool adam = type == OptimizerType::kAdam || type == OptimizerType::kAdamW;
  const std::string why = concat("with name: ", name_of(type));
  s.read("weight_decay", optimizer.weight_decay, at_least(0));
  s.read_if(momentum, why, "momentum", optimizer.momentum, from_up_to_below(0, 1));
  s.read_if(type == OptimizerType::kRmsprop, why, "alpha", optimizer.alpha, from_up_to_below(0, 1));
  s.read_if(type == OptimizerType::kAdadelta, why, "rho", optimizer.rho, from_up_to_below(0, 1));
  std::vector<double> betas(optimizer.betas.begin(), optimizer.betas.end());
  s.read_if(adam, why, "betas", betas, from_up_to_below(0, 1));
  if (betas.size() == 2) {
    optimizer.betas = {betas[0], betas[1]};
  } else {
    s.complain("betas", "'training.optimizer.betas' must be two numbers, got ", betas.size(), '.');
  }
  s.read_if(type != OptimizerType::kSgd && !momentum, why, "eps", optimizer.eps, positive());
}

void bind_schedule(ConfigSection& s, Config& config) {
  ScheduleOptions& schedule = config.schedule;
  s.read("learning_rate", config.learning_rate, positive());
  s.read_choice("lr_scheduler_type", schedule.type,
                {{"constant", ScheduleType::kConstant},
                 {"linear", ScheduleType::kLinear},
                 {"cosine", ScheduleType::kCosine},
                 {"inverse_sqrt", ScheduleType::kInverseSqrt},
                 {"noam", ScheduleType::kNoam},
                 {"polynomial", ScheduleType::kPolynomial},
                 {"step", ScheduleType::kStep}});
  const bool polynomial = schedule.type == ScheduleType::kPolynomial;
  const bool constant = schedule.type == ScheduleType::kConstant;
  const bool step = schedule.type == ScheduleType::kStep;
  const std::string why = concat("with lr_scheduler_type: ", name_of(schedule.type));
  s.read("warmup_steps", schedule.warmup_steps, at_least(0));
  s.read_if(!constant, why, "min_learning_rate", schedule.min_learning_rate, at_least(0));
  s.read_if(polynomial, why, "lr_power", schedule.power, positive());
  s.read_if(step, why, "lr_step_size", schedule.step_size, at_least(0));
  s.read_if(step, why, "lr_gamma", schedule.gamma, positive());
  schedule.max_steps = config.training.max_steps;
  schedule.model_size = config.model.hidden_size;
  const bool told = schedule.max_steps <= 0 || schedule.model_size <= 0;  // what is wrong
  if (told) return;
  try {
    validate(schedule, config.learning_rate);
  } catch (const Error& error) {
    s.complain("lr_scheduler_type", error.what());
  }
}

void bind_training(ConfigSection& s, Config& config) {
  TrainingOptions& training = config.training;
  s.read_choice("batch_type", config.batch.batch_type, names({"tokens", "sentences"}));
  s.read("batch_size", config.batch.batch_size, positive());
  const int64_t max_length = config.data.corpus.max_length;
  if (config.batch.batch_type == "tokens" && config.batch.batch_size < max_length) {
    s.complain("batch_size",
               "'training.batch_size' (tokens) must hold a sentence of data.max_length, got ",
               config.batch.batch_size, " and ", max_length, '.');
  }
  s.read("gradient_accumulation_steps", training.gradient_accumulation_steps, positive());
  s.require("max_steps", training.max_steps, positive());
  s.read("max_hours", training.max_hours, at_least(0));
  s.section("optimizer", [&](ConfigSection& o) { bind_optimizer(o, config.optimizer); });
  bind_schedule(s, config);
  s.read("label_smoothing", training.label_smoothing, from_up_to_below(0, 1));
  s.read("max_grad_norm", training.max_grad_norm, at_least(0));
  s.read("clip_value", training.clip_value, at_least(0));
  s.read("ema_decay", training.ema_decay, from_up_to_below(0, 1));
  s.read("logging_steps", training.logging_steps, positive());
  s.read("eval_steps", training.eval_steps, at_least(0));
  s.read("eval_batch_size", training.eval_batch_size, positive());
  s.read("save_steps", training.save_steps, at_least(0));
  s.read("save_total_limit", training.save_total_limit, at_least(0));
  s.read("early_stopping_patience", training.early_stopping_patience, at_least(0));
  s.read_choice("metric_for_best_model", training.metric_for_best_model,
                names({"bleu", "chrf", "nll", "loss", "ppl"}));
  if (training.early_stopping_patience > 0 && config.data.valid.empty()) {
    s.complain("early_stopping_patience",
               "'training.early_stopping_patience' needs a validation set, got no 'data.valid'.");
  }
}

void bind_generation(ConfigSection& s, SearchOptions& search) {
  s.read("num_beams", search.num_beams, positive());
  s.read("length_penalty", search.length_penalty, at_least(0));
  s.read_choice("length_penalty_type", search.length_penalty_type,
                {{"average", LengthPenalty::kAverage},
                 {"gnmt", LengthPenalty::kGnmt},
                 {"none", LengthPenalty::kNone}});
  s.read("max_length_ratio", search.max_length_ratio, positive());
}

void bind_evaluation(ConfigSection& s, EvaluationOptions& evaluation) {
  s.read_choice("bleu_tokenize", evaluation.bleu_tokenize, names({"13a", "none"}));
  s.read("lowercase", evaluation.lowercase);
  s.read("num_beams", evaluation.num_beams, between(1, 1024));
}

void bind_device(ConfigSection& s, std::string& device) {
  s.read("device", device);
  const bool named = device == "auto" || device == "cpu" || device == "cuda";
  const bool numbered = device.starts_with("cuda:") && device.size() > 5 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (!named && !numbered) {
    s.complain("device", "'device' must be one of auto, cpu, cuda, cuda:N, got '", device, "'.");
  }
}

void bind_config(ConfigSection& s, Config& config) {
  s.demand("task");
  s.read_choice("task", config.task,
                {{"translation", Task::kTranslation},
                 {"clm", Task::kTranslation, false},
                 {"mlm", Task::kTranslation, false},
                 {"denoising", Task::kTranslation, false}});
  s.read("seed", config.seed);
  bind_device(s, config.device);
  s.read("threads", config.threads, between(0, 1024));
  s.read_choice("dtype", config.dtype,
                {{"float32", DType::kFloat32},
                 {"float64", DType::kFloat64},
                 {"bfloat16", DType::kFloat32, false}});
  s.demand("output_dir");
  s.read_output_path("output_dir", config.output_dir);
  s.section("data", [&](ConfigSection& d) { bind_data(d, config.data); });
  config.batch.seed = config.seed;
  s.section("tokenizer", [&](ConfigSection& t) { bind_tokenizer(t, config.tokenizer); });
  s.section("model", [&](ConfigSection& m) {
    bind_model(m, config);
    if (config.data.corpus.max_length > config.model.max_position_embeddings) {
      m.complain("max_position_embeddings",
                 "'model.max_position_embeddings' must be at least data.max_length, got ",
                 config.model.max_position_embeddings, " and ", config.data.corpus.max_length, '.');
    }
  });
  s.section("training", [&](ConfigSection& t) { bind_training(t, config); });
  s.section("generation", [&](ConfigSection& g) { bind_generation(g, config.generation); });
  s.section("evaluation", [&](ConfigSection& e) { bind_evaluation(e, config.evaluation); });
}

Config read_tree(const ConfigNode& root, ConfigReadOptions options,
                 std::vector<ConfigProblem> problems = {}) {
  Config config;
  read_config(
      root, [&](ConfigSection& s) { bind_config(s, config); }, options, std::move(problems));
  return config;
}

/// The resolved tree of a config: what binding it to an empty file yields.
ConfigNode resolve(const Config& config) {
  Config copy = config;
  ConfigReadOptions options;
  options.require_keys = false;
  options.check_files = false;
  return read_config(
      ConfigNode::map(), [&](ConfigSection& s) { bind_config(s, copy); }, options);
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  ConfigNode root = parse_config_file(path);
  std::vector<ConfigProblem> problems;
  for (size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<int>(i), problems);
  }
  return read_tree(root, {}, std::move(problems));
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::string& directory) {
  return read_tree(parse_config_text(text, name, directory), {});
}

Config load_checkpoint_config(const std::string& json, const std::string& name) {
  ConfigReadOptions options;
  options.check_files = false;
  options.refuse_unused = false;
  return read_tree(parse_config_text(json, name, ""), options);
}

std::string to_yaml(const Config& config) { return to_yaml(resolve(config)); }
std::string to_json(const Config& config) { return to_json(resolve(config)); }

}  // namespace tapestry
