// A task as its config sees it: the examples that it reads, the models that it trains, its
// sections. The rows themselves, and the code behind them, are in apps/tasks/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/config/examples.h"

namespace tapestry {

class ConfigSection;
struct Config;
struct CorpusSpec;

enum class ModelType {
  kEncoderDecoder,
  kRnnAttention,
  kEncoder,
  kDecoder,
  kVit,               ///< of images
  kLinear,            ///< of images: softmax regression
  kAttentionPooling,  ///< of points: Nadaraya-Watson regression
};

/// What the rest of the program asks of a model type.
struct ModelTraits {
  ModelType type;
  const char* name;              ///< as in a config
  bool reads_two_texts = false;  ///< a source and a target
  bool writes = false;           ///< text, token by token
  bool has_attention = false;    ///< layers of it, with heads and positions
  bool recomputes = false;       ///< knows training.recompute

  /// A Transformer that reads its own tokens one by one: decoding keeps keys and values.
  bool has_cache() const { return writes && has_attention; }
};
const ModelTraits& traits_of(ModelType type);
inline const char* name_of(ModelType type) { return traits_of(type).name; }

/// Abilities of a trained model, by which commands accept it.
enum Ability : unsigned {
  kTranslates = 1 << 0,
  kScoresPairs = 1 << 1,    ///< the probability of a target, given its source
  kContinuesText = 1 << 2,  ///< continues a text, and knows its probability
  kModelsText = 1 << 3,     ///< has a perplexity
  kFillsMasks = 1 << 4,
  kClassifies = 1 << 5,
  kFindsAnswers = 1 << 6,  ///< spans of a context that answer a question
  kPredictsNumbers = 1 << 7,
  kLabelsWords = 1 << 8,
  kRatesTexts = 1 << 9,     ///< a number for a text
  kFindsClasses = 1 << 10,  ///< any number of classes for a text
  kEmbedsTexts = 1 << 11,   ///< a vector for a text
};

/// A section that only some tasks have.
struct TaskSection {
  const char* key;
  const char* meaning;  ///< for the reference of the keys
  void (*bind)(ConfigSection& section, Config& config);
};

/// Examples that a task trains on.
struct TaskExamples {
  const ExampleKind* kind;
  std::vector<ModelType> models;     ///< that read them, first the default
  std::vector<const char*> metrics;  ///< of validation; the first tells the best model
};

struct TaskKind {
  const char* name;                  ///< as in a config
  unsigned abilities;                ///< of its models: Ability, joined by |
  std::vector<const char*> metrics;  ///< of validation, whatever the examples
  /// Binds the keys of a corpus, of any kind of examples that the task has.
  void (*bind_corpus)(ConfigSection& section, CorpusSpec& corpus);
  std::vector<TaskSection> sections = {};          ///< besides data, tokenizer, model and training
  bool validates_by_search = false;                ///< translates its validation set
  bool learns_from_teacher = false;                ///< has training.teacher
  bool needs_mask_piece = false;                   ///< the tokenizer has a piece for the mask ...
  int64_t sentinels = 0;                           ///< ... and pieces for this many gaps
  const char* models_of = nullptr;                 ///< a task whose models its own are; null: none
  void (*set_defaults)(Config& config) = nullptr;  ///< sets defaults that differ from Config's own
  std::vector<TaskExamples> examples = {};         ///< first the default; of the rows of a Task

  /// The name of the task that first has its models: other programs know no other task of them.
  const char* name_of_models() const { return models_of != nullptr ? models_of : name; }
  bool can(Ability ability) const { return (abilities & ability) != 0; }
  bool reads(Medium medium) const;
  /// The examples that it has by default.
  const ExampleKind& usual() const { return *examples.front().kind; }
};

/// Every task, in the order in which messages name them. The first is a config's default.
std::span<const TaskKind* const> task_kinds();
/// The task of that name, or nullptr.
const TaskKind* find_task(std::string_view name);
/// "clm or mlm": the names of the tasks whose models can do something.
std::string tasks_that_can(Ability ability);

}  // namespace tapestry
