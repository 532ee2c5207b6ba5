// One training on examples: batches, micro-batches, loss and measuring, as every task has them. A
// task says the rest in a struct, its Kind.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/tasks/task.h"
#include "data/batches/loader.h"

namespace tapestry {

/// Appends a batch, cut by rows into `parts` of about one size (at most as many as it has rows).
/// The loss of an update is a sum over all of its targets, so it is that of the whole batch.
template <class Batch>
void append_in_parts(Batch batch, int64_t parts, std::vector<Batch>& update) {
  const int64_t rows = batch.rows;
  parts = std::min(parts, rows);
  if (parts <= 1) {
    update.push_back(std::move(batch));
    return;
  }
  for (int64_t part = 0; part < parts; ++part) {
    update.push_back(rows_of(batch, rows * part / parts, rows * (part + 1) / parts));
  }
}

/// The batches of a measurement, in the order of the corpus.
inline BatchOptions unshuffled(BatchOptions options) {
  options.shuffle = false;
  return options;
}

/// Trains Kind::model on Kind::train. A Kind reads its corpora and makes its model in its
/// constructor, Kind(Config, TokenizerPair, const Report&), and has
///
///   model                 a pointer to a bundle: store, config, files()
///   train, held_out       the corpora, of which held_out is an OfHeldOut
///   batches(start)        a walk (...Batches) through `train`
///   size_of(batch)        its tokens and targets
///   loss(batch, options)  CrossEntropy
///   texts(batch)          a text for each row, for people
///   measure(corpus, options, group, details)   as TrainingTask::measure
///   choices()             how many values a target may have; 0: any number
///
/// and if it keeps something, as TrainingTask::kept() and begin():
///
///   kept(), begin(anew, group)
///
/// For a type of batch there is rows_of(batch, begin, end): these rows of it.
template <class Kind>
class SupervisedTask final : public TrainingTask {
 public:
  SupervisedTask(const Config& config, TokenizerPair tokenizers, const TaskPlace& place,
                 const Report& report)
      : group_(place.group),
        kind_(config, std::move(tokenizers), report),
        loader_(told(kind_.batches(place.start), report), place.share) {}

  ParamStore& parameters() override { return kind_.model->store; }
  const Config& config() const override { return kind_.model->config; }

  UpdateSize next_update(int64_t micro_batches) override {
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      append_in_parts(loader_.next().batch, kind_.model->config.training.splits, update_);
    }
    UpdateSize size{.micro_batches = std::ssize(update_)};
    for (const auto& batch : update_) {
      const UpdateSize part = kind_.size_of(batch);
      size.tokens += part.tokens;
      size.targets += part.targets;
    }
    return size;
  }
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    return kind_.loss(update_.at(static_cast<size_t>(i)), options);
  }
  std::vector<std::string> texts(int64_t i) const override {
    return kind_.texts(update_.at(static_cast<size_t>(i)));
  }
  DataPosition position() const override { return loader_.position(); }
  int64_t batches_in_epoch(const DataPosition& place) const override {
    return kind_.batches(place).batches_in_epoch();
  }

  int64_t examples(HeldOut set) const override { return kind_.held_out[set].size(); }
  std::map<std::string, double> measure(HeldOut set, const CrossEntropyOptions& options,
                                        ValidationDetails* details) override {
    return kind_.measure(kind_.held_out[set], options, group_, details);
  }
  double uniform_nll() const override {
    const int64_t choices = kind_.choices();
    return choices > 0 ? std::log(static_cast<double>(choices)) : TrainingTask::uniform_nll();
  }
  std::map<std::string, std::string> files() const override { return kind_.model->files(); }
  NamedTensors kept() const override {
    if constexpr (requires { kind_.kept(); }) return kind_.kept();
    return {};
  }
  void begin(bool anew) override {
    if constexpr (requires { kind_.begin(anew, group_); }) kind_.begin(anew, group_);
  }

 private:
  using Walk = decltype(std::declval<const Kind&>().batches(DataPosition()));
  using Loader = tapestry::Loader<Walk>;

  static Walk told(Walk walk, const Report& report) {
    if (const std::string summary = walk.summary(); !summary.empty()) {
      report(concat("batches: ", summary));
    }
    return walk;
  }

  const RankGroup group_;
  Kind kind_;
  Loader loader_;  // destroyed first: its thread reads the corpus
  std::vector<typename Loader::Batch> update_;
};

template <class Kind>
std::unique_ptr<TrainingTask> make_supervised(const Config& config, TokenizerPair tokenizers,
                                              const TaskPlace& place, const Report& report) {
  return std::make_unique<SupervisedTask<Kind>>(config, std::move(tokenizers), place, report);
}

/// Reads the sets that the config has: load(corpora, set) for each, with its counts reported.
template <class Corpus, class Load>
OfHeldOut<Corpus> load_held_out_sets(const Config& config, const Report& report, Load load) {
  OfHeldOut<Corpus> sets;
  for (const HeldOut set : kHeldOut) {
    if (corpora_of(config, set).empty()) continue;
    sets[set] = load(corpora_of(config, set), load_context(config, report, set));
    report_held_out(set, sets[set], report);
  }
  return sets;
}

}  // namespace tapestry
