// The task that learns vectors of texts: from pairs that belong together, maybe with texts that do
// not, or from pairs with a number that says how alike they are.
#include "apps/tasks/embedding.h"

#include <algorithm>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "autograd/recompute.h"
#include "data/examples/text_pairs.h"
#include "data/scores/correlation.h"
#include "data/scores/retrieval.h"

namespace tapestry {

/// Each row is compared with all others of its batch, so the batch stays whole. With
/// training.splits its vectors are computed in parts, EmbeddingKind::vectors_in_parts().
void append_in_parts(TextPairBatch batch, int64_t, std::vector<TextPairBatch>& update) {
  update.push_back(std::move(batch));
}

namespace {

Var vectors_of(const EmbeddingModel& model, const FramedRows& texts) {
  return model.model(texts.ids.to(model.device()), texts.lengths);
}

TextPairCorpus load_pairs(const Config& config, const std::vector<CorpusSpec>& corpora,
                          const TokenizerPair& tokenizers, const LoadContext& context = {}) {
  CorpusOptions options = config.data.corpus;
  options.overlong = "truncate";
  return load_text_pairs(corpora, tokenizers, options, context);
}

std::vector<int64_t> numbers_in(const std::vector<int64_t>& numbers, const TextPairBatch& batch) {
  std::vector<int64_t> found;
  for (const int64_t pair : batch.indices) found.push_back(numbers[static_cast<size_t>(pair)]);
  return found;
}

// The targets of a batch, and its negatives behind them.
template <class Vectors>
Var choices_of(const TextPairBatch& batch, const Vectors& vectors) {
  if (!batch.negative.ids.defined()) return vectors(batch.target);
  return concat({vectors(batch.target), vectors(batch.negative)}, 0);
}

CrossEntropy loss_of(const EmbeddingModel& model, const TextPairCorpus& corpus,
                     const TextPairBatch& batch, const Var& sources, const Var& choices,
                     const CrossEntropyOptions& options) {
  EqualTexts equal{.sources = numbers_in(corpus.source_numbers, batch),
                   .targets = numbers_in(corpus.target_numbers, batch)};
  if (corpus.has_negatives()) {
    const std::vector<int64_t> negatives = numbers_in(corpus.negative_numbers, batch);
    equal.targets.insert(equal.targets.end(), negatives.begin(), negatives.end());
  }
  return contrastive_loss(sources, choices, equal, model.config.embedding, options);
}

// The vectors of both sides of a corpus, (N, D) float32 in host memory.
struct PairVectors {
  Tensor sources, targets;
};

// Adds the vectors of a batch to a list of numbers.
void append(const Var& vectors, std::vector<float>& numbers) {
  const Tensor host = vectors.value().to(DType::kFloat32).to(Device{});
  numbers.insert(numbers.end(), host.data<float>(), host.data<float>() + host.numel());
}

// What the ranks found: of each batch its pairs, and the vectors of its sources and targets.
PairVectors in_places(const std::vector<std::vector<int64_t>>& pairs,
                      const std::vector<std::vector<float>>& numbers, const Shape& shape) {
  PairVectors all{.sources = Tensor::empty(shape, DType::kFloat32),
                  .targets = Tensor::empty(shape, DType::kFloat32)};
  const int64_t size = shape[1];
  for (size_t batch = 0; batch < pairs.size(); ++batch) {
    const float* from = numbers[batch].data();
    for (Tensor* const side : {&all.sources, &all.targets}) {
      for (const int64_t pair : pairs[batch]) {
        std::copy_n(from, size, side->data<float>() + pair * size);
        from += size;
      }
    }
  }
  return all;
}

// Where each source finds its target among all targets, and which one it finds first.
struct Found {
  std::vector<int64_t> ranks;  ///< from 1
  std::vector<int64_t> first;
};

// Targets that are equal to a source's own do not stand before it.
Found find_targets(const PairVectors& vectors, const TextPairCorpus& corpus, Device device) {
  constexpr int64_t kMostProducts = int64_t{1} << 24;  // in memory at a time
  const int64_t count = corpus.size();
  const int64_t step = std::max<int64_t>(1, kMostProducts / std::max<int64_t>(1, count));
  const Var targets(vectors.targets.to(device));
  Found found;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t end = std::min(count, begin + step);
    const Var sources(vectors.sources.slice(begin, end).to(device));
    const Tensor products = matmul(sources, targets, {.trans_b = true}).value().to(Device{});
    for (int64_t row = begin; row < end; ++row) {
      const float* const of_row = products.data<float>() + (row - begin) * count;
      const int64_t own = corpus.target_numbers[static_cast<size_t>(row)];
      int64_t rank = 1;
      for (int64_t i = 0; i < count; ++i) {
        const bool equal = corpus.target_numbers[static_cast<size_t>(i)] == own;
        // A vector that is no number finds nothing.
        if (!equal && !(of_row[i] < of_row[row])) ++rank;
      }
      found.ranks.push_back(rank);
      found.first.push_back(std::max_element(of_row, of_row + count) - of_row);
    }
  }
  return found;
}

std::string text_of(const EmbeddingModel& model, const TokenLists& side, int64_t pair) {
  const auto tokens = side[pair];
  return model.tokenizers.source->decode({tokens.begin(), tokens.end()});
}

std::map<std::string, double> measure_pairs(const EmbeddingModel& model,
                                            const TextPairCorpus& corpus,
                                            const RankGroup& group = {},
                                            ValidationDetails* details = nullptr) {
  TextPairBatches batches(corpus, unshuffled(model.config.batch));
  const int64_t count = batches.batches_in_epoch();
  std::vector<std::vector<int64_t>> pairs;
  std::vector<std::vector<float>> numbers;
  const LossSums sums = loss_over_epoch(std::move(batches), group, [&](const TextPairBatch& batch) {
    const Var sources = vectors_of(model, batch.source);
    const Var choices =
        choices_of(batch, [&](const FramedRows& texts) { return vectors_of(model, texts); });
    pairs.push_back(batch.indices);
    append(sources, numbers.emplace_back());
    append(slice(choices, 0, 0, batch.rows), numbers.back());
    return loss_of(model, corpus, batch, sources, choices, {});
  });
  const PairVectors vectors =
      in_places(group.in_order(std::move(pairs), count), group.in_order(std::move(numbers), count),
                {corpus.size(), model.config.model.text_vector_size()});
  const Found found = find_targets(vectors, corpus, model.device());
  std::map<std::string, double> metrics = retrieval_scores(found.ranks);
  // accuracy: found among the texts of its batch.
  for (const char* name : {"nll", "loss", "accuracy"}) metrics[name] = sums.metrics().at(name);
  const int64_t wanted = details != nullptr ? details->wanted : 0;
  for (const int64_t i : shown_examples(wanted, corpus.size())) {
    const int64_t first = found.first[static_cast<size_t>(i)];
    details->samples.push_back({.given = {{"source", text_of(model, corpus.source, i)},
                                          {"reference", text_of(model, corpus.target, i)}},
                                .output = text_of(model, corpus.target, first)});
  }
  return metrics;
}

// What ranks exchange of a pair.
struct Alike {
  int64_t pair = 0;
  double product = 0;
};

// The products of both vectors of each pair, and the mean loss of the batches.
struct Products {
  std::vector<double> of_pairs;
  double loss = 0;
};

Products products_of(const EmbeddingModel& model, const TextPairCorpus& corpus,
                     const RankGroup& group) {
  TextPairBatches batches(corpus, unshuffled(model.config.batch));
  const int64_t count = batches.batches_in_epoch();
  std::vector<std::vector<Alike>> own;
  Products products{.of_pairs = std::vector<double>(static_cast<size_t>(corpus.size()))};
  const LossSums sums = loss_over_epoch(std::move(batches), group, [&](const TextPairBatch& batch) {
    const Var sources = vectors_of(model, batch.source), targets = vectors_of(model, batch.target);
    const auto found = sum(mul(sources, targets), 1).value().to_vector<double>();
    std::vector<Alike>& alike = own.emplace_back();
    for (size_t row = 0; row < found.size(); ++row) {
      alike.push_back({batch.indices[row], found[row]});
    }
    return ranking_loss(sources, targets, batch.scores, model.config.embedding.temperature, {});
  });
  for (const std::vector<Alike>& batch : group.in_order(own, count)) {
    for (const Alike& one : batch) products.of_pairs[static_cast<size_t>(one.pair)] = one.product;
  }
  products.loss = sums.metrics().at("loss");
  return products;
}

std::map<std::string, double> measure_scores(const TextPairCorpus& corpus,
                                             const Products& products) {
  std::vector<double> truth;
  for (int64_t i = 0; i < corpus.size(); ++i) truth.push_back(corpus.score(i));
  return {{"spearman", spearman_correlation(products.of_pairs, truth)},
          {"pearson", pearson_correlation(products.of_pairs, truth)},
          {"loss", products.loss}};
}

// What both kinds of pairs share.
struct VectorKind {
  VectorKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train = load_text_pairs(config.data.train, tokenizers, config.data.corpus,
                            load_context(config, report, "train"));
    report_counts("training data", train, report);
    held_out = load_held_out_sets<TextPairCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_pairs(config, corpora, tokenizers, context);
        });
    model = std::make_unique<EmbeddingModel>(config, std::move(tokenizers), ModelUse::kTraining);
  }

  TextPairBatches batches(DataPosition start) const {
    return TextPairBatches(train, model->config.batch, std::move(start));
  }
  /// The vectors of a batch in training.splits parts. Only the vectors stay in memory; backward
  /// computes each part again (gradient caching: Gao et al. 2021).
  Var vectors_in_parts(const FramedRows& texts) const {
    const int64_t rows = texts.lengths.numel();
    const int64_t parts = std::min(model->config.training.splits, rows);
    if (parts <= 1) return vectors_of(*model, texts);
    const Tensor all = texts.ids.to(model->device());
    std::vector<Var> vectors;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
      vectors.push_back(recompute(
          [embedder = &model->model, ids = all.slice(begin, end),
           lengths = texts.lengths.slice(begin, end)] { return (*embedder)(ids, lengths); }));
    }
    return concat(vectors, 0);
  }
  std::vector<std::string> texts(const TextPairBatch& batch) const {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      const int64_t pair = batch.indices[static_cast<size_t>(row)];
      return concat(text_of(*model, train.source, pair), "  ->  ",
                    text_of(*model, train.target, pair));
    });
  }
  static int64_t choices() { return 0; }

  std::unique_ptr<EmbeddingModel> model;
  TextPairCorpus train;
  OfHeldOut<TextPairCorpus> held_out;
};

struct TextPairKind : VectorKind {
  using VectorKind::VectorKind;

  static UpdateSize size_of(const TextPairBatch& batch) {
    return {.tokens = batch.source.tokens + batch.target.tokens + batch.negative.tokens,
            .targets = static_cast<double>(batch.rows)};
  }
  CrossEntropy loss(const TextPairBatch& batch, const CrossEntropyOptions& options) const {
    const Var sources = vectors_in_parts(batch.source);
    const Var choices =
        choices_of(batch, [&](const FramedRows& texts) { return vectors_in_parts(texts); });
    return loss_of(*model, train, batch, sources, choices, options);
  }
  std::map<std::string, double> measure(const TextPairCorpus& corpus, const CrossEntropyOptions&,
                                        const RankGroup& group, ValidationDetails* details) const {
    return measure_pairs(*model, corpus, group, details);
  }
};

struct RatedPairKind : VectorKind {
  using VectorKind::VectorKind;

  // The loss of a batch is one number.
  static UpdateSize size_of(const TextPairBatch& batch) {
    return {.tokens = batch.source.tokens + batch.target.tokens, .targets = 1};
  }
  CrossEntropy loss(const TextPairBatch& batch, const CrossEntropyOptions& options) const {
    const Var sources = vectors_in_parts(batch.source);
    return ranking_loss(sources, vectors_in_parts(batch.target), batch.scores,
                        model->config.embedding.temperature, options);
  }
  std::map<std::string, double> measure(const TextPairCorpus& corpus, const CrossEntropyOptions&,
                                        const RankGroup& group, ValidationDetails* details) const {
    const Products products = products_of(*model, corpus, group);
    const int64_t wanted = details != nullptr ? details->wanted : 0;
    for (const int64_t i : shown_examples(wanted, corpus.size())) {
      details->samples.push_back({.given = {{"source", text_of(*model, corpus.source, i)},
                                            {"target", text_of(*model, corpus.target, i)},
                                            {"reference", concat(corpus.score(i))}},
                                  .output = concat(products.of_pairs[static_cast<size_t>(i)])});
    }
    return measure_scores(corpus, products);
  }
};

Evaluation evaluate_searches(ModelFiles files, const std::string& device,
                             const std::vector<CorpusSpec>& corpora) {
  const auto model = EmbeddingModel::load(std::move(files), device, "evaluate", kEmbedsTexts);
  const TextPairCorpus corpus = load_pairs(model->config, corpora, model->tokenizers);
  warn_of_dropped(corpus.counts);
  Evaluation result;
  result.add(measure_pairs(*model, corpus),
             {"recall_at_1", "recall_at_5", "recall_at_10", "mrr", "nll"});
  result.add_count("pairs", corpus.size());
  return result;
}

Evaluation evaluate_scores(ModelFiles files, const std::string& device,
                           const std::vector<CorpusSpec>& corpora) {
  const auto model = EmbeddingModel::load(std::move(files), device, "evaluate", kEmbedsTexts);
  const TextPairCorpus corpus = load_pairs(model->config, corpora, model->tokenizers);
  warn_of_dropped(corpus.counts);
  Evaluation result;
  result.add(measure_scores(corpus, products_of(*model, corpus, {})), {"spearman", "pearson"});
  result.add_count("pairs", corpus.size());
  return result;
}

}  // namespace

extern const Task kEmbedding({.name = "embedding",
                              .abilities = kEmbedsTexts,
                              .metrics = {},
                              .bind_corpus = bind_text_pairs,
                              .sections = {kVectors}},
                             {{.examples = &kTextPairExamples,
                               .models = {&kTextEmbedderModel},
                               .make = make_supervised<TextPairKind>,
                               .evaluate = evaluate_searches,
                               .more_metrics = {"recall_at_1", "recall_at_5", "recall_at_10", "mrr",
                                                "nll", "loss"}},
                              {.examples = &kRatedPairExamples,
                               .models = {&kTextEmbedderModel},
                               .make = make_supervised<RatedPairKind>,
                               .evaluate = evaluate_scores,
                               .more_metrics = {"spearman", "pearson", "loss"}}});

Tensor embed(const EmbeddingModel& model, const std::vector<FramedText>& texts) {
  return vectors_of(model, framed_rows(texts, model.tokenizers.source->special().filler()))
      .value()
      .to(Device{});
}

}  // namespace tapestry
