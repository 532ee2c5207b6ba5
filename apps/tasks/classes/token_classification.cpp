#include "apps/tasks/classes/token_classification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/two_passes.h"
#include "core/base/interruption.h"
#include "core/base/text.h"
#include "data/files/utf8.h"
#include "data/scores/entity_scores.h"

namespace tapestry {
namespace {

Var hidden_of(const TokenClassifierModel& model, const TaggedBatch& batch) {
  const Device device = model.device();
  return model.model.hidden(batch.ids.to(device), batch.lengths.to(device));
}

// What ranks exchange of a word: its class, its probability.
struct Found {
  int64_t label = 0;
  double probability = 0;
};

// The most probable class at each place of a row, for the words that begin there.
std::vector<Found> labels_of_row(std::span<const double> probabilities, int64_t classes,
                                 const std::vector<PlacedWord>& words) {
  std::vector<Found> found;
  for (const PlacedWord& word : words) {
    const auto row = probabilities.subspan(static_cast<size_t>(word.place * classes),
                                           static_cast<size_t>(classes));
    const auto best = std::ranges::max_element(row);
    found.push_back({best - row.begin(), *best});
  }
  return found;
}

// Sums of losses beside the labels, so that a validation reads each window once.
struct Labelled {
  std::vector<std::vector<WordLabel>> words;
  LossSums losses;
};

// Puts the labels of the words of consecutive windows in their places.
class Places {
 public:
  explicit Places(const TokenClassifierModel& model, const TaggedCorpus& corpus)
      : names_(model.config.data.labels), corpus_(corpus) {
    for (int64_t i = 0; i < corpus.size(); ++i) {
      words_.emplace_back(static_cast<size_t>(corpus.words(i)));
    }
  }

  void add(const std::vector<Found>& found) {
    for (size_t at = 0; at < found.size();) {
      const int64_t sentence = corpus_.windows[static_cast<size_t>(window_)].sentence;
      for (const PlacedWord& word : words_in(corpus_, window_++)) {
        words_[static_cast<size_t>(sentence)][static_cast<size_t>(word.word)] = {
            names_.at(static_cast<size_t>(found[at].label)), found[at].probability};
        ++at;
      }
    }
  }
  std::vector<std::vector<WordLabel>> take() { return std::move(words_); }

 private:
  const std::vector<std::string>& names_;
  const TaggedCorpus& corpus_;
  std::vector<std::vector<WordLabel>> words_;
  int64_t window_ = 0;
};

Labelled label_all(const TokenClassifierModel& model, const TaggedCorpus& corpus,
                   const CrossEntropyOptions* losses, const RankGroup& group) {
  std::vector<int64_t> all(corpus.windows.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto rows = static_cast<size_t>(model.config.training.eval_batch_size);
  std::vector<std::vector<Found>> own;
  std::vector<LossSums::Part> own_losses;
  int64_t batches = 0;
  Progress progress("labelling words", std::ssize(all), "rows");
  for (size_t begin = 0; begin < all.size(); begin += rows) {
    progress.to(static_cast<int64_t>(begin));
    stop_if_asked();
    if (!group.owns(batches++)) continue;
    const auto windows = std::span(all).subspan(begin, std::min(rows, all.size() - begin));
    const TaggedBatch batch = make_tagged_batch(corpus, windows);
    const Var hidden = hidden_of(model, batch);
    if (losses != nullptr) {
      own_losses.push_back(LossSums::part_of(model.model.loss(hidden, batch.labels, *losses)));
    }
    const Var logits = model.model.logits(hidden);
    const std::vector<double> values = softmax(logits).value().to(Device{}).to_vector<double>();
    const int64_t classes = logits.shape()[2];
    const auto width = static_cast<size_t>(batch.ids.shape()[1] * classes);
    std::vector<Found>& found = own.emplace_back();
    for (size_t row = 0; row < windows.size(); ++row) {
      const std::vector<Found> of_row = labels_of_row(std::span(values).subspan(row * width, width),
                                                      classes, words_in(corpus, windows[row]));
      found.insert(found.end(), of_row.begin(), of_row.end());
    }
  }
  Places places(model, corpus);
  for (const std::vector<Found>& found : group.in_order(own, batches)) places.add(found);
  Labelled result{.words = places.take(), .losses = {}};
  if (losses == nullptr) return result;
  for (const LossSums::Part& part : group.in_order(own_losses, batches)) result.losses.add(part);
  return result;
}

std::vector<std::string_view> true_labels(const TaggedCorpus& corpus, int64_t sentence) {
  std::vector<std::string_view> labels;
  for (int64_t word = 0; word < corpus.words(sentence); ++word) {
    labels.emplace_back(corpus.label_names[static_cast<size_t>(corpus.label(sentence, word))]);
  }
  return labels;
}

std::vector<std::string_view> labels_of(const std::vector<WordLabel>& words) {
  std::vector<std::string_view> labels;
  for (const WordLabel& word : words) labels.emplace_back(word.label);
  return labels;
}

EntityCounts counts_of(const TaggedCorpus& corpus,
                       const std::vector<std::vector<WordLabel>>& found) {
  EntityCounts counts;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    counts.add(true_labels(corpus, i), labels_of(found[static_cast<size_t>(i)]));
  }
  return counts;
}

std::string joined(const std::vector<std::string_view>& labels) {
  return join(std::vector<std::string>(labels.begin(), labels.end()), " ");
}

std::map<std::string, double> metrics_of(const Labelled& labelled, const EntityCounts& counts) {
  std::map<std::string, double> metrics = labelled.losses.metrics();
  metrics.erase("ppl");  // labels are no words
  for (const auto& [name, value] : counts.metrics()) metrics[name] = value;
  return metrics;
}

TaggedCorpus load_held_out_tags(const Config& config, const std::vector<CorpusSpec>& corpora,
                                const Tokenizer& tokenizer, const LoadContext& context = {}) {
  return load_tagged(corpora, tokenizer, config.data.corpus, /*whole=*/true, config.data.labels,
                     context);
}

struct TokenKind {
  TokenKind(Config config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train = load_tagged(config.data.train, *tokenizers.source, config.data.corpus,
                        /*whole=*/false, config.data.labels, load_context(config, report, "train"));
    report_counts(concat("training data: ", train.label_names.size(), " labels"), train, report);
    config.data.labels = train.label_names;
    held_out = load_held_out_sets<TaggedCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_held_out_tags(config, corpora, *tokenizers.source, context);
        });
    model =
        std::make_unique<TokenClassifierModel>(config, std::move(tokenizers), ModelUse::kTraining);
  }

  TaggedBatches batches(DataPosition start) const {
    return TaggedBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const TaggedBatch& batch) {
    const std::vector<int32_t> labels = batch.labels.to_vector<int32_t>();
    return {
        .tokens = batch.tokens,
        .targets = static_cast<double>(std::ssize(labels) - std::ranges::count(labels, kNoTarget))};
  }
  CrossEntropy loss(const TaggedBatch& batch, const CrossEntropyOptions& options) const {
    if (model->config.training.r_drop == 0) {
      return model->model.loss(hidden_of(*model, batch), batch.labels, options);
    }
    return loss_in_passes(
        model->config, batch, batch.labels, options,
        [&](const TaggedBatch& given) { return model->model.logits(hidden_of(*model, given)); });
  }
  std::vector<std::string> texts(const TaggedBatch& batch) const {
    return row_texts(batch.rows, batch.windows, [&](int64_t row) {
      const int64_t window = batch.windows[static_cast<size_t>(row)];
      const int64_t sentence = train.windows[static_cast<size_t>(window)].sentence;
      return concat(joined(true_labels(train, sentence)), "  <-  ",
                    model->tokenizers.source->decode(ids_of_row(batch.ids, row, batch.lengths)));
    });
  }
  std::map<std::string, double> measure(const TaggedCorpus& corpus,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    return tapestry::measure(*model, corpus, options, group, details);
  }
  int64_t choices() const { return std::ssize(model->config.data.labels); }

  std::unique_ptr<TokenClassifierModel> model;
  TaggedCorpus train;
  OfHeldOut<TaggedCorpus> held_out;
};

Evaluation evaluate_tags(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora) {
  const auto model = TokenClassifierModel::load(std::move(files), device, "evaluate", kLabelsWords);
  const TaggedCorpus corpus = load_held_out_tags(model->config, corpora, *model->tokenizers.source);
  warn_of_dropped(corpus.counts);
  const CrossEntropyOptions options;
  const Labelled labelled = label_all(*model, corpus, &options, {});
  const EntityCounts counts = counts_of(corpus, labelled.words);
  Evaluation result;
  result.add(metrics_of(labelled, counts), {"f1", "precision", "recall", "accuracy", "nll"});
  result.classes = counts.scores();
  result.add_count("sentences", corpus.size());
  result.add_count("words", counts.words());
  result.add_count("entities", counts.entities());
  return result;
}

}  // namespace

extern const Task kTokenClassification(
    {.name = "token_classification",
     .abilities = kLabelsWords,
     .metrics = {"f1", "precision", "recall", "accuracy", "nll", "loss"},
     .bind_corpus = bind_tagged},
    {{&kTaggedExamples, {&kTokenClassifierModel}, make_supervised<TokenKind>, evaluate_tags}});

std::vector<std::vector<WordLabel>> label_words(const TokenClassifierModel& model,
                                                const TaggedCorpus& corpus,
                                                const RankGroup& group) {
  return label_all(model, corpus, /*losses=*/nullptr, group).words;
}

std::map<std::string, double> measure(const TokenClassifierModel& model, const TaggedCorpus& corpus,
                                      const CrossEntropyOptions& options, const RankGroup& group,
                                      ValidationDetails* details) {
  const Labelled labelled = label_all(model, corpus, &options, group);
  const int64_t wanted = details != nullptr ? details->wanted : 0;
  for (const int64_t i : shown_examples(wanted, corpus.size())) {
    const auto tokens = corpus.tokens[i];
    details->samples.push_back(
        {.given = {{"text", model.tokenizers.source->decode({tokens.begin(), tokens.end()})},
                   {"reference", joined(true_labels(corpus, i))}},
         .output = joined(labels_of(labelled.words[static_cast<size_t>(i)]))});
  }
  return metrics_of(labelled, counts_of(corpus, labelled.words));
}

TextInWords in_words(const std::string& text) {
  constexpr const char* kSpace = " \t\r\v\f";
  TextInWords line{.text = text, .words = {}, .begins = {}};
  for (size_t at = text.find_first_not_of(kSpace); at != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    std::string word = text.substr(at, end - at);
    if (!is_blank(word)) {
      line.words.push_back(std::move(word));
      line.begins.push_back(at);
    }
    at = text.find_first_not_of(kSpace, end);
  }
  return line;
}

}  // namespace tapestry
