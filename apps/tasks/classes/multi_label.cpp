// Texts with any number of classes: each class is a decision of its own (problem_type
// "multi_label_classification" of transformers). The label of a text is a list of names with commas
// between them; "-" is none.
#include "apps/tasks/classes/classification.h"

#include <algorithm>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/two_passes.h"
#include "core/base/text.h"
#include "data/examples/labelled.h"

namespace tapestry {
namespace {

/// Texts with the classes of each.
struct MultiCorpus : LabelledCorpus {
  MultiCorpus() = default;
  MultiCorpus(LabelledCorpus texts, const std::vector<std::string>& known, const std::string& where)
      : LabelledCorpus(std::move(texts)), labels(label_sets(*this, known, where)) {}

  const std::vector<std::string>& names() const { return labels.names; }
  /// 1 for each of its classes, else 0.
  const std::vector<int32_t>& set(int64_t text) const { return labels.of(*this, text); }

  LabelSets labels;
};

MultiCorpus load_multi(const std::vector<CorpusSpec>& corpora, const Tokenizer& tokenizer,
                       const CorpusOptions& options, const std::vector<std::string>& names,
                       const LoadContext& context) {
  return {load_labelled(corpora, tokenizer, options, {}, context), names, corpora.front().str()};
}

// Binary cross-entropy with a logit z is the cross-entropy of two classes with the logits 0 and z:
// (B, classes) -> (B, classes, 2).
Var pairs_of(const Var& logits) {
  const Shape one{logits.shape()[0], logits.shape()[1], 1};
  const Var zeros(Tensor::zeros(one, logits.dtype(), logits.value().device()));
  return concat({zeros, reshape(logits, one)}, 2);
}

// targets (B, classes) int32
Tensor targets_of(const MultiCorpus& corpus, const LabelledBatch& batch) {
  std::vector<int32_t> all;
  for (const int64_t text : batch.indices) {
    const std::vector<int32_t>& set = corpus.set(text);
    all.insert(all.end(), set.begin(), set.end());
  }
  return Tensor::from(all, {batch.rows, std::ssize(corpus.names())});
}

std::string text_of(const std::vector<std::string>& names, const std::vector<int32_t>& set) {
  std::vector<std::string> chosen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (set[i] != 0) chosen.push_back(names[i]);
  }
  return chosen.empty() ? "-" : join(chosen, ", ");
}

// The classes of all texts with more than one half, and the losses.
struct Decided {
  std::vector<std::vector<int32_t>> sets;
  LossSums losses;
};

Decided decide_all(const TextClassifier& model, const MultiCorpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group) {
  LabelledBatches batches(corpus, unshuffled(model.config.batch));
  const int64_t count = batches.batches_in_epoch();
  const size_t classes = corpus.names().size();
  std::vector<std::vector<int64_t>> own;  // of each batch: text and decisions, row by row
  Decided decided;
  decided.losses = loss_over_epoch(std::move(batches), group, [&](const LabelledBatch& batch) {
    const Var logits = outputs_of(model, batch);
    const std::vector<double> values = logits.value().to(Device{}).to_vector<double>();
    std::vector<int64_t>& rows = own.emplace_back();
    for (size_t row = 0; row < batch.indices.size(); ++row) {
      rows.push_back(batch.indices[row]);
      for (size_t i = 0; i < classes; ++i) rows.push_back(values[row * classes + i] > 0);
    }
    return cross_entropy(pairs_of(logits), targets_of(corpus, batch), options);
  });
  decided.sets.assign(static_cast<size_t>(corpus.size()), std::vector<int32_t>(classes));
  for (const std::vector<int64_t>& rows : group.in_order(own, count)) {
    for (size_t at = 0; at < rows.size(); at += classes + 1) {
      std::vector<int32_t>& set = decided.sets[static_cast<size_t>(rows[at])];
      for (size_t i = 0; i < classes; ++i) set[i] = static_cast<int32_t>(rows[at + 1 + i]);
    }
  }
  return decided;
}

// Counts of a class, or of all together.
struct Counts {
  int64_t right = 0, given = 0, truth = 0;

  double precision() const { return share(right, given); }
  double recall() const { return share(right, truth); }
  double f1() const { return share(2 * right, given + truth); }
  static double share(int64_t part, int64_t whole) {
    return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
  }
};

ClassScores scores_of(const MultiCorpus& corpus, const Decided& decided, Counts& all) {
  ClassScores scores;
  double sum = 0;
  for (size_t i = 0; i < corpus.names().size(); ++i) {
    Counts own;
    for (int64_t text = 0; text < corpus.size(); ++text) {
      const bool truth = corpus.set(text)[i] != 0;
      const bool given = decided.sets[static_cast<size_t>(text)][i] != 0;
      own.truth += truth;
      own.given += given;
      own.right += truth && given;
    }
    all.truth += own.truth;
    all.given += own.given;
    all.right += own.right;
    scores.classes.push_back(
        {corpus.names()[i], own.precision(), own.recall(), own.f1(), own.truth});
    sum += scores.classes.back().f1;
  }
  scores.macro_f1 = sum / static_cast<double>(corpus.names().size());
  return scores;
}

std::map<std::string, double> metrics_of(const MultiCorpus& corpus, const Decided& decided,
                                         const ClassScores& scores, const Counts& all) {
  std::map<std::string, double> metrics = decided.losses.metrics();
  metrics.erase("ppl");  // classes are no words
  int64_t exact = 0;
  for (int64_t text = 0; text < corpus.size(); ++text) {
    exact += decided.sets[static_cast<size_t>(text)] == corpus.set(text);
  }
  metrics["micro_f1"] = all.f1();
  metrics["macro_f1"] = scores.macro_f1;
  metrics["exact_match"] = Counts::share(exact, corpus.size());
  return metrics;
}

struct MultiKind {
  MultiKind(Config config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train = load_multi(config.data.train, *tokenizers.source, config.data.corpus,
                       config.data.labels, load_context(config, report, "train"));
    report_counts(concat("training data: ", train.names().size(), " classes"), train, report);
    config.data.labels = train.names();
    CorpusOptions options = config.data.corpus;
    options.overlong = "truncate";
    held_out = load_held_out_sets<MultiCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          check_texts(config, corpora);
          return load_multi(corpora, *tokenizers.source, options, config.data.labels, context);
        });
    model = std::make_unique<TextClassifier>(config, std::move(tokenizers), ModelUse::kTraining);
  }

  LabelledBatches batches(DataPosition start) const {
    return LabelledBatches(train, model->config.batch, std::move(start));
  }
  // The loss is the mean over all decisions.
  UpdateSize size_of(const LabelledBatch& batch) const {
    return {.tokens = batch.tokens,
            .targets = static_cast<double>(batch.rows * std::ssize(train.names()))};
  }
  CrossEntropy loss(const LabelledBatch& batch, const CrossEntropyOptions& options) const {
    return loss_in_passes(
        model->config, batch, targets_of(train, batch), options,
        [&](const LabelledBatch& given) { return pairs_of(outputs_of(*model, given)); });
  }
  std::vector<std::string> texts(const LabelledBatch& batch) const {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return concat(text_of(train.names(), train.set(batch.indices[static_cast<size_t>(row)])),
                    "  <-  ",
                    model->tokenizers.source->decode(ids_of_row(batch.ids, row, batch.lengths)));
    });
  }
  std::map<std::string, double> measure(const MultiCorpus& corpus,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    const Decided decided = decide_all(*model, corpus, options, group);
    const int64_t wanted = details != nullptr ? details->wanted : 0;
    for (const int64_t i : shown_examples(wanted, corpus.size())) {
      auto given = given_texts(corpus, *model->tokenizers.source, i);
      given.emplace_back("reference", text_of(corpus.names(), corpus.set(i)));
      details->samples.push_back(
          {.given = std::move(given),
           .output = text_of(corpus.names(), decided.sets[static_cast<size_t>(i)])});
    }
    Counts all;
    const ClassScores scores = scores_of(corpus, decided, all);
    return metrics_of(corpus, decided, scores, all);
  }
  static int64_t choices() { return 2; }

  std::unique_ptr<TextClassifier> model;
  MultiCorpus train;
  OfHeldOut<MultiCorpus> held_out;
};

Evaluation evaluate_class_sets(ModelFiles files, const std::string& device,
                               const std::vector<CorpusSpec>& corpora) {
  const auto model = TextClassifier::load(std::move(files), device, "evaluate", kFindsClasses);
  CorpusOptions options = model->config.data.corpus;
  options.overlong = "truncate";
  const MultiCorpus corpus =
      load_multi(corpora, *model->tokenizers.source, options, model->config.data.labels, {});
  warn_of_dropped(corpus.counts);
  const Decided decided = decide_all(*model, corpus, {}, {});
  Counts all;
  Evaluation result;
  result.classes = scores_of(corpus, decided, all);
  result.add(metrics_of(corpus, decided, *result.classes, all),
             {"micro_f1", "macro_f1", "exact_match", "accuracy", "nll"});
  result.add_count("texts", corpus.size());
  return result;
}

}  // namespace

extern const Task kMultiLabel({.name = "multi_label",
                               .abilities = kFindsClasses,
                               .metrics = {"micro_f1", "macro_f1", "exact_match", "accuracy", "nll",
                                           "loss"},
                               .bind_corpus = bind_labelled_texts},
                              {{&kLabelledExamples,
                                {&kTextClassifierModel},
                                make_supervised<MultiKind>,
                                evaluate_class_sets}});

std::vector<ClassProbabilities> class_probabilities(const TextClassifier& model,
                                                    const std::vector<FramedText>& texts) {
  const Var logits = outputs_of(model, texts);
  const std::vector<double> all = unary(Unary::kSigmoid, logits).value().to_vector<double>();
  const int64_t classes = logits.shape()[1];
  std::vector<ClassProbabilities> rows;
  for (auto row = all.begin(); row != all.end(); row += classes) {
    rows.emplace_back(row, row + classes);
  }
  return rows;
}

}  // namespace tapestry
