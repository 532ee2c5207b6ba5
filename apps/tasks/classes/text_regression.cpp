// Texts with a number each: the head of a classifier with one output, and squared errors
// (problem_type "regression" of transformers).
#include <limits>

#include "apps/config/sections.h"
#include "apps/tasks/classes/classification.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/regression.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "data/corpora/empty_text.h"
#include "data/examples/labelled.h"
#include "data/files/text.h"
#include "data/scores/correlation.h"

namespace tapestry {
namespace {

/// Texts whose labels are numbers.
struct RatedCorpus : LabelledCorpus {
  RatedCorpus() = default;
  explicit RatedCorpus(LabelledCorpus texts) : LabelledCorpus(std::move(texts)) {
    for (const std::string& label : label_names) {
      double value = 0;
      check(parse_number(label, value), "data", "the reader drops what has no number.");
      numbers.push_back(value);
    }
  }
  double number(int64_t text) const { return numbers[static_cast<size_t>(label(text))]; }

  std::vector<double> numbers;  ///< of the labels
};

RatedCorpus load_rated(const std::vector<CorpusSpec>& corpora, const Tokenizer& tokenizer,
                       const CorpusOptions& options, const LoadContext& context) {
  std::vector<CorpusSpec> rated = corpora;
  for (CorpusSpec& corpus : rated) corpus.label_numbers = true;
  return RatedCorpus(load_labelled(rated, tokenizer, options, {}, context));
}

Var predicted(const TextClassifier& model, const LabelledBatch& batch) {
  return reshape(outputs_of(model, batch), {batch.rows});
}

// What ranks exchange of a text.
struct Rated {
  int64_t text = 0;
  double number = 0;
};

std::vector<double> rate_corpus(const TextClassifier& model, const RatedCorpus& corpus,
                                const RankGroup& group) {
  LabelledBatches batches(corpus, unshuffled(model.config.batch));
  const int64_t count = batches.batches_in_epoch();
  Progress progress("rating", count, "batches");
  std::vector<std::vector<Rated>> own;
  for (int64_t i = 0; i < count; ++i, progress.add()) {
    if (!group.owns(i)) {
      batches.skip(1);
      continue;
    }
    const LabelledBatch batch = batches.next();
    const auto numbers = predicted(model, batch).value().to_vector<double>();
    std::vector<Rated>& rated = own.emplace_back();
    for (size_t row = 0; row < numbers.size(); ++row) {
      rated.push_back({batch.indices[row], numbers[row]});
    }
  }
  std::vector<double> all(static_cast<size_t>(corpus.size()));
  for (const std::vector<Rated>& rated : group.in_order(own, count)) {
    for (const Rated& one : rated) all[static_cast<size_t>(one.text)] = one.number;
  }
  return all;
}

std::map<std::string, double> metrics_of(const std::vector<double>& found,
                                         const RatedCorpus& corpus) {
  std::vector<double> truth;
  double squares = 0;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    truth.push_back(corpus.number(i));
    const double error = found[static_cast<size_t>(i)] - truth.back();
    squares += error * error;
  }
  const double mse = squares / static_cast<double>(corpus.size());
  return {{"mse", mse},
          {"loss", mse},
          {"pearson", pearson_correlation(found, truth)},
          {"spearman", spearman_correlation(found, truth)}};
}

struct RatingKind {
  RatingKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train = load_rated(config.data.train, *tokenizers.source, config.data.corpus,
                       load_context(config, report, "train"));
    report_counts("training data", train, report);
    CorpusOptions options = config.data.corpus;
    options.overlong = "truncate";
    held_out = load_held_out_sets<RatedCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          check_texts(config, corpora);
          return load_rated(corpora, *tokenizers.source, options, context);
        });
    model = std::make_unique<TextClassifier>(config, std::move(tokenizers), ModelUse::kTraining);
  }

  LabelledBatches batches(DataPosition start) const {
    return LabelledBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const LabelledBatch& batch) {
    return {.tokens = batch.tokens, .targets = static_cast<double>(batch.rows)};
  }
  CrossEntropy loss(const LabelledBatch& batch, const CrossEntropyOptions& options) const {
    std::vector<double> truth;
    for (const int64_t text : batch.indices) truth.push_back(train.number(text));
    const Var found = predicted(*model, batch);
    return squared_error(
        found, Tensor::from(truth, {batch.rows}).to(found.dtype()).to(model->device()), options);
  }
  std::vector<std::string> texts(const LabelledBatch& batch) const {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return concat(train.number(batch.indices[static_cast<size_t>(row)]), "  <-  ",
                    model->tokenizers.source->decode(ids_of_row(batch.ids, row, batch.lengths)));
    });
  }
  std::map<std::string, double> measure(const RatedCorpus& corpus, const CrossEntropyOptions&,
                                        const RankGroup& group, ValidationDetails* details) const {
    const std::vector<double> found = rate_corpus(*model, corpus, group);
    const int64_t wanted = details != nullptr ? details->wanted : 0;
    for (const int64_t i : shown_examples(wanted, corpus.size())) {
      auto given = given_texts(corpus, *model->tokenizers.source, i);
      given.emplace_back("reference", concat(corpus.number(i)));
      details->samples.push_back(
          {.given = std::move(given), .output = concat(found[static_cast<size_t>(i)])});
    }
    return metrics_of(found, corpus);
  }
  static int64_t choices() { return 0; }

  std::unique_ptr<TextClassifier> model;
  RatedCorpus train;
  OfHeldOut<RatedCorpus> held_out;
};

Evaluation evaluate_ratings(ModelFiles files, const std::string& device,
                            const std::vector<CorpusSpec>& corpora) {
  const auto model = TextClassifier::load(std::move(files), device, "evaluate", kRatesTexts);
  CorpusOptions options = model->config.data.corpus;
  options.overlong = "truncate";
  const RatedCorpus corpus = load_rated(corpora, *model->tokenizers.source, options, {});
  warn_of_dropped(corpus.counts);
  const auto metrics = metrics_of(rate_corpus(*model, corpus, {}), corpus);
  Evaluation result;
  result.add(metrics, {"mse", "pearson", "spearman"});
  result.add_count("texts", corpus.size());
  return result;
}

}  // namespace

extern const Task kTextRegression(
    {.name = "text_regression",
     .abilities = kRatesTexts,
     .metrics = {"mse", "loss", "pearson", "spearman"},
     .bind_corpus = bind_labelled_texts},
    {{&kRatedExamples, {&kTextClassifierModel}, make_supervised<RatingKind>, evaluate_ratings}});

std::vector<double> rate_texts(const TextClassifier& model, const std::vector<FramedText>& texts) {
  return outputs_of(model, texts).value().to_vector<double>();
}

}  // namespace tapestry
