// The sections of a config, in the order of their keys. Every bind_... reads one section into the
// options of the libraries: names, bounds and meanings of its keys. Derived values and rules about
// several keys are in complete.cpp and rules.cpp.
#pragma once

#include <ranges>

#include "apps/config/config.h"
#include "apps/config/reader.h"
#include "data/examples/block_batching.h"

namespace tapestry {

/// Bound of widths of models and of their vectors.
inline constexpr double kMostWidth = 1 << 24;

/// Choices that are their own values.
template <size_t kCount>
std::vector<ConfigChoice<std::string>> names(const char* const (&list)[kCount]) {
  std::vector<ConfigChoice<std::string>> choices;
  for (const char* name : list) choices.push_back({name, name});
  return choices;
}

/// Choices with the names of name_of().
template <class Values>
auto named(const Values& values) {
  std::vector<ConfigChoice<std::ranges::range_value_t<Values>>> choices;
  for (const auto& value : values) choices.push_back({name_of(value), value});
  return choices;
}

/// The key `device`, which must name one.
void bind_device(ConfigSection& s, std::string& device);
void bind_data(ConfigSection& s, Config& config);
/// A key that names corpora, a list or one.
void bind_corpora(ConfigSection& s, const char* key, const char* meaning, const TaskKind& task,
                  std::vector<CorpusSpec>& corpora);
/// One corpus of a task, with the keys of all kinds.
void bind_corpus(ConfigSection& s, const TaskKind& task, CorpusSpec& corpus);
/// Corpora: pairs of sentences; text without translations; texts or images with a class each.
void bind_pairs(ConfigSection& s, CorpusSpec& corpus);
void bind_text_pairs(ConfigSection& s, CorpusSpec& corpus);
void bind_text(ConfigSection& s, CorpusSpec& corpus);
/// Text, or prompts with answers.
void bind_text_or_prompts(ConfigSection& s, CorpusSpec& corpus);
void bind_labelled(ConfigSection& s, CorpusSpec& corpus);
/// Texts with a label each: a number, or names with commas between them.
void bind_labelled_texts(ConfigSection& s, CorpusSpec& corpus);
/// Prompts, or talks, with a better and a worse answer.
void bind_preferences(ConfigSection& s, CorpusSpec& corpus);
/// Questions about contexts.
void bind_questions(ConfigSection& s, CorpusSpec& corpus);
/// Sentences whose words have a tag each.
void bind_tagged(ConfigSection& s, CorpusSpec& corpus);
/// Points of the plane.
void bind_points(ConfigSection& s, CorpusSpec& corpus);
/// The key `range` of a part of a file.
void bind_range(ConfigSection& s, CorpusSpec& corpus, bool applies);
/// The keys of talks in the section data, which apply or do not, `why`.
void bind_talks(ConfigSection& s, Config& config, bool applies, const std::string& why);
/// Gives the corpora the template that the config chooses, and the special tokens of a vocabulary
/// that is learnt. A task that has a model's own corrects it by set_format().
void settle_talks(Config& config);
/// The keys of images in the sections data.train, data and model.
void bind_image_corpus(ConfigSection& s, CorpusSpec& corpus);
void bind_image_data(ConfigSection& s, Config& config);
void bind_cleaning(ConfigSection& s, Config& config);
void bind_text_changes(ConfigSection& s, Config& config);
void bind_image_model(ConfigSection& s, Config& config);
void bind_tokenizer(ConfigSection& s, Config& config);
void bind_masking(ConfigSection& s, Config& config);
void bind_denoising(ConfigSection& s, Config& config);
void bind_model(ConfigSection& s, Config& config);
void bind_training(ConfigSection& s, Config& config);
void bind_optimizer(ConfigSection& s, Config& config);
void bind_distributed(ConfigSection& s, Config& config);
void bind_generation(ConfigSection& s, Config& config);
void bind_evaluation(ConfigSection& s, Config& config);
/// The keys of the section model of how a text's vector is made, and what its classes are read
/// from.
void bind_text_vectors(ConfigSection& s, Config& config);
void bind_embedding(ConfigSection& s, Config& config);
void bind_preference(ConfigSection& s, Config& config);
void bind_answers(ConfigSection& s, Config& config);

// The sections that only some tasks have.
inline constexpr TaskSection kMasking{"masking", "What a masked language model has to predict.",
                                      bind_masking};
inline constexpr TaskSection kDenoisingNoise{"denoising", "How the text is corrupted.",
                                             bind_denoising};
inline constexpr TaskSection kGeneration{
    "generation", "How outputs are searched for or drawn; the commands have options for it too.",
    bind_generation};
inline constexpr TaskSection kVectors{
    "embedding",
    "How the vectors of pairs are compared: each pair with the others of its own micro-batch. "
    "Neither gradient_accumulation_steps nor ranks enlarge it; a larger training.batch_size does, "
    "for which training.splits makes room. nll and accuracy depend on that size.",
    bind_embedding};
inline constexpr TaskSection kPreference{"preference", "How the better answer is learnt.",
                                         bind_preference};
inline constexpr TaskSection kAnswers{"answers", "What may be an answer.", bind_answers};
inline constexpr TaskSection kEvaluation{"evaluation", "How translations are judged.",
                                         bind_evaluation};

/// May change the defaults of a task on its kind of examples. The data is not read yet.
using BeginConfig = std::function<void(const ExampleKind& examples, Config& config)>;
/// A tree read as a config; with options.keys, also its keys.
Config read_tree(const ConfigNode& root, ConfigReadOptions options,
                 std::vector<ConfigProblem> problems = {}, const BeginConfig& begin = {});

/// What a task does with one of its kinds of examples.
const TaskExamples& examples_in(const TaskKind& task, const ExampleKind& kind);
/// The model types that a config's task trains on its data, first the default.
const std::vector<ModelType>& model_types(const Config& config);
ModelOptions model_defaults(ModelType type);

/// The default learning rate.
double usual_learning_rate(const Config& config);
/// training.optimizer.adamw_learning_rate where none is given.
double usual_adamw_rate(const Config& config);

/// True if a config's model has a layer between the first token and the classes of a text:
/// model.pooler says which.
bool has_pooler(const Config& config);
/// Whether its head reads whole texts, so that model.classifier_pooling says what of them.
bool pools_classes(const Config& config);
/// Whether its head reads each token, so that model.pooled_tokens says if there is that layer.
bool reads_tokens(const Config& config);
/// Its choices.
const std::vector<ConfigChoice<Pooler>>& poolers();

/// True if a task's model predicts classes or tokens by a softmax, all of whose logits are stored:
/// it may have training.r_drop.
bool has_r_drop(const TaskKind& task);

/// Sets the members that follow from the others.
void derive(Config& config);

/// Collects errors about conflicting keys.
struct KeyReport {
  /// The full name of the key to change, and the rest of the sentence.
  std::function<void(const std::string& key, const std::string& problem)> complain;
  /// True if no value of a section was refused. Otherwise the section is not what the user wrote,
  /// and its rules are skipped.
  std::function<bool(const std::string& section)> is_sound;
  /// False for the config of a checkpoint: how it read its data is no matter any more.
  bool is_new = true;
};
void check_rules(const Config& config, const KeyReport& report);

}  // namespace tapestry
