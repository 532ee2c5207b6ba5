// The trainer's view of a task, and everything that makes one: a new task is a file with a Task in
// it and a row in table.cpp.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/tasks/rank_group.h"
#include "apps/tasks/validation_details.h"
#include "autograd/ops.h"
#include "core/base/progress.h"
#include "data/batches/batching.h"
#include "data/batches/loader.h"
#include "data/scores/sampled_ratio.h"
#include "nn/layers/parameters.h"
#include "nn/models/model_options.h"
#include "optim/named.h"

namespace tapestry {

/// The place in the data where a training begins, and this rank's share of the work.
struct TaskPlace {
  DataPosition start;
  Share share = {};      ///< of the micro-batches of an update
  RankGroup group = {};  ///< the ranks that measure together
};

/// The size of one update: its micro-batches together.
struct UpdateSize {
  int64_t micro_batches = 0;
  int64_t tokens = 0;  ///< tokens that the model reads and writes, without padding; tokens/s counts
                       ///< these
  /// Tokens that it must predict, without padding, each multiplied by its weight; the loss is
  /// divided by these.
  double targets = 0;
};

/// Examples that are measured, not learnt from.
enum class HeldOut { kValidation, kTest };
inline constexpr HeldOut kHeldOut[] = {HeldOut::kValidation, HeldOut::kTest};
/// "validation" or "test"
const char* name_of(HeldOut set);
/// The config's corpora of this set; empty: none.
const std::vector<CorpusSpec>& corpora_of(const Config& config, HeldOut set);

/// Something for each set.
template <class T>
class OfHeldOut {
 public:
  T& operator[](HeldOut set) { return set == HeldOut::kTest ? test_ : validation_; }
  const T& operator[](HeldOut set) const { return set == HeldOut::kTest ? test_ : validation_; }

 private:
  T validation_, test_;
};

/// One kind of training (translation, language modelling, ...), as the trainer uses it.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  virtual ParamStore& parameters() = 0;
  /// The config, with the facts that the data gives: classes, the format of images.
  virtual const Config& config() const = 0;
  /// Takes the next batches from the data: this rank's share of an update. With training.splits
  /// each becomes several micro-batches.
  virtual UpdateSize next_update(int64_t micro_batches) = 0;
  /// The loss of micro-batch `i` of the current update.
  virtual CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) = 0;
  /// Micro-batch `i` of the current update as text: one for each row, with its number in the corpus
  /// if it has one.
  virtual std::vector<std::string> texts(int64_t i) const = 0;
  /// The place in the data: a task built with this position continues with the same batches.
  virtual DataPosition position() const = 0;
  /// Batches of the epoch of a place, without those in DataPosition::before. Other epochs may have
  /// a few more or less than the first.
  virtual int64_t batches_in_epoch(const DataPosition& place = {}) const = 0;
  /// Number of examples in a set; 0: there is no such set.
  virtual int64_t examples(HeldOut set) const = 0;
  /// The nll of a uniformly random target; infinite if targets are not drawn from a list.
  virtual double uniform_nll() const { return std::numeric_limits<double>::infinity(); }
  /// Metrics of a set that has examples, by name: those of TaskKind::metrics, and more if they
  /// apply. `details` may be null. Ranks may ask for different numbers of samples.
  virtual std::map<std::string, double> measure(HeldOut set, const CrossEntropyOptions& options,
                                                ValidationDetails* details) = 0;
  /// What the task knows of the model before its first update, in host memory: a checkpoint keeps
  /// it. Empty: nothing.
  virtual NamedTensors kept() const { return {}; }
  /// Called by all ranks together, before the first update. Either a training begins and the
  /// parameters are its first ones, or kept() was read from the checkpoint that is resumed.
  virtual void begin(bool /*anew*/) {}
  /// Files that a checkpoint needs besides the tensors: config.json, tokenizers.
  virtual std::map<std::string, std::string> files() const = 0;
};

/// Callbacks for messages about a task's data.
struct Report {
  using Say = std::function<void(const std::string& message)>;

  /// Sentences only.
  template <std::invocable<const std::string&> F>
  Report(F f) : say(std::move(f)) {}
  Report(Say says, Say warns) : say(std::move(says)), warn(std::move(warns)) {}

  void operator()(const std::string& message) const { say(message); }

  Say say;          ///< for each corpus: what was read and what was dropped
  Say warn;         ///< may be empty
  Say loaded = {};  ///< gets a checksum of each set of examples; may be empty
};

/// Tells Report::loaded of these arrays.
void report_checksum(const Report& report, std::initializer_list<std::span<const std::byte>> of);

/// The options to load data that is kept as `file` in the run folder, or in data.cache_dir.
LoadContext context_with_cache(const Config& config, const Report& report, const std::string& file);
/// The options for `part` ("train"), kept as "tokens-train.bin".
inline LoadContext load_context(const Config& config, const Report& report,
                                const std::string& part) {
  return context_with_cache(config, report, concat("tokens-", part, ".bin"));
}

inline LoadContext load_context(const Config& config, const Report& report, HeldOut set) {
  return load_context(config, report, set == HeldOut::kTest ? "test" : "valid");
}

struct Evaluation;
struct ModelFiles;
struct ModelRow;

/// What a task does with models that read one kind of examples.
struct TaskRow {
  const ExampleKind* examples;
  std::vector<const ModelRow*> models;  ///< apps/tasks/models.h
  /// Reads and encodes the corpora. Without `tokenizers` it trains them, or reads those that the
  /// config names.
  std::unique_ptr<TrainingTask> (*make)(const Config& config, TokenizerPair tokenizers,
                                        const TaskPlace& place, const Report& report);
  /// What the model of a checkpoint achieves on corpora, on a device.
  Evaluation (*evaluate)(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora);
  std::vector<const char*> more_metrics = {};  ///< besides TaskKind::metrics
};

/// A complete task: the part that a config needs, and the code behind it.
struct Task : TaskKind {
  /// First the row of the default examples and model.
  Task(TaskKind kind, std::vector<TaskRow> rows);

  std::vector<TaskRow> rows;
};

/// "training data: 29000 read, 29000 kept", and "(cached)" if nothing was encoded.
template <class Corpus>
std::string summary_of(const std::string& what, const Corpus& corpus) {
  return concat(what, corpus.from_cache ? " (cached): " : ": ", corpus.counts.summary());
}

/// The row of a config's model.
const ModelRow& model_of(const Config& config);
/// What the model of a checkpoint achieves on corpora of any kind that its task has.
Evaluation evaluate_on(ModelFiles files, const std::string& device,
                       const std::vector<CorpusSpec>& corpora);
std::unique_ptr<TrainingTask> make_task(const Config& config, TokenizerPair tokenizers,
                                        const TaskPlace& place, const Report& report);

/// Warns if more than one example in a hundred is damaged or too long, or if the vocabulary does
/// not know many tokens.
void warn_of_counts(const std::string& what, const FilterCounts& counts, const Report& report);

/// The counts of each of several corpora.
void report_each_corpus(const FilterCounts& counts, const Report& report);

/// Reports the counts of what was read, and with several corpora also of each.
template <class Corpus>
void report_counts(const std::string& what, const Corpus& corpus, const Report& report) {
  report(summary_of(what, corpus));
  report_each_corpus(corpus.counts, report);
  warn_of_counts(what, corpus.counts, report);
}

/// Reports the counts of a set, and warns of examples that are left out: its figures are then not
/// those of the whole files.
template <class Corpus>
void report_held_out(HeldOut set, const Corpus& corpus, const Report& report) {
  const std::string what = concat(name_of(set), " data");
  report_counts(what, corpus, report);
  if (const int64_t dropped = corpus.counts.total_dropped(); dropped > 0) {
    const auto& warn = report.warn ? report.warn : report.say;
    warn(concat(name_of(set), " leaves out ", dropped, dropped == 1 ? " example" : " examples",
                "; its figures are not those of the whole files"));
  }
}

/// `given`, or if it is empty the tokenizers that the config asks for.
TokenizerPair settle_tokenizers(const Config& config, TokenizerPair given, const Report& report);
/// Reports the share of the characters of each corpus that tokenizers change, from the beginning of
/// its files.
void report_changes(const Config& config, const TokenizerPair& tokenizers, const Report& report);
/// Both.
TokenizerPair prepare_tokenizers(const Config& config, TokenizerPair given, const Report& report);

/// The probability of a text under a model.
struct Score {
  double log_probability = 0;     ///< of all tokens, each given those before it and the source
  int64_t tokens = 0;             ///< eos included
  std::vector<int32_t> ids = {};  ///< the tokens
  std::vector<double> each = {};  ///< the log-probability of each
};

/// Loss and accuracy over a validation set.
class LossSums {
 public:
  /// The sums of one batch.
  struct Part {
    double loss, nll, correct;
    int64_t tokens;
  };
  static Part part_of(const CrossEntropy& result);

  void add(const Part& part);
  void add(const CrossEntropy& result) { add(part_of(result)); }
  // Each over tokens; their groups are the batches.
  const SampledRatio& nll() const { return nll_; }
  const SampledRatio& correct() const { return correct_; }
  int64_t tokens() const { return tokens_; }
  /// loss, nll (per token), ppl and accuracy (in percent).
  std::map<std::string, double> metrics() const;

 private:
  SampledRatio loss_, nll_, correct_;
  int64_t tokens_ = 0;
};

/// The loss over one epoch of a walk (...Batches), of which loss_of(batch) is a CrossEntropy. The
/// batches are shared out.
template <class Batches, class LossOf>
LossSums loss_over_epoch(Batches batches, const RankGroup& group, LossOf loss_of) {
  const int64_t count = batches.batches_in_epoch();
  Progress progress("measuring the loss", count, "batches");
  std::vector<LossSums::Part> own;
  for (int64_t i = 0; i < count; ++i, progress.add()) {
    if (group.owns(i)) {
      own.push_back(LossSums::part_of(loss_of(batches.next())));
    } else {
      batches.skip(1);
    }
  }
  LossSums sums;
  for (const LossSums::Part& part : group.in_order(own, count)) sums.add(part);
  return sums;
}

/// The log-probability of each target, in order. logits (..., V), targets (...) int32.
std::vector<double> target_log_probabilities(const Var& logits, const Tensor& targets);

/// The metric that counts translations that end at the length limit; absent if there are none.
inline constexpr const char* kCutAtLimit = "cut_at_limit";

/// True for metrics that are better when they are larger (bleu, rouge, accuracy, f1, ...).
bool larger_is_better(const std::string& metric);
/// True for those of them that are shown in percent.
bool is_in_percent(const std::string& metric);

}  // namespace tapestry
