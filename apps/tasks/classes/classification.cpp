#include "apps/tasks/classes/classification.h"

#include <algorithm>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/two_passes.h"
#include "data/examples/image_batching.h"
#include "data/examples/labelled.h"

namespace tapestry {
namespace {

Sample sample_of(const std::vector<std::string>& classes, const ClassProbabilities& probabilities,
                 std::vector<std::pair<std::string, std::string>> given, int32_t truth) {
  Sample sample{.given = std::move(given)};
  sample.given.emplace_back("class", classes.at(static_cast<size_t>(truth)));
  sample.guesses = best_guesses(classes, probabilities);
  sample.output = sample.guesses.at(0).first;
  return sample;
}

std::string label_of(const Tensor& labels, int64_t row, const std::vector<std::string>& names) {
  const auto label = static_cast<size_t>(labels.data<int32_t>()[row]);
  return label < names.size() ? names[label] : std::to_string(label);
}

// The differences between texts and images. The constructors read the data and write what they
// learn from it (classes, image format) into the config, which the checkpoint keeps.

struct TextData {
  static constexpr const char* kUnit = "texts";
  using Corpus = LabelledCorpus;
  using Batches = LabelledBatches;
  using Model = TextClassifier;

  TextData(Config& config, TokenizerPair& tokenizers, const Report& report) {
    tokenizers = prepare_tokenizers(config, std::move(tokenizers), report);
    train = load_labelled(config.data.train, *tokenizers.source, config.data.corpus,
                          config.data.labels, load_context(config, report, "train"));
    report_counts(concat("training data: ", train.label_names.size(), " classes"), train, report);
    config.data.labels = train.label_names;
    held_out = load_held_out_sets<Corpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          check_texts(config, corpora);
          return load_held_out(config, corpora, tokenizers, context);
        });
  }

  static Corpus load_held_out(const Config& config, const std::vector<CorpusSpec>& corpora,
                              const TokenizerPair& tokenizers, const LoadContext& context = {}) {
    CorpusOptions options = config.data.corpus;
    options.overlong = "truncate";
    return load_labelled(corpora, *tokenizers.source, options, config.data.labels, context);
  }

  static Batches batches(const Config& config, const Corpus& corpus, bool shuffle,
                         DataPosition start) {
    return Batches(corpus, shuffle ? config.batch : unshuffled(config.batch), start);
  }
  static Var logits(const Model& model, const LabelledBatch& batch) {
    return outputs_of(model, batch);
  }
  static int64_t tokens(const Model&, const LabelledBatch& batch) { return batch.tokens; }
  static Sample sample(const Model& model, const Corpus& corpus, int64_t i) {
    return sample_of(model.config.data.labels, classify(model, {corpus.row(i)}).at(0),
                     given_texts(corpus, *model.tokenizers.source, i), corpus.label(i));
  }
  static std::vector<std::string> texts(const Model& model, const LabelledBatch& batch) {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return concat(label_of(batch.labels, row, model.config.data.labels), "  <-  ",
                    model.tokenizers.source->decode(ids_of_row(batch.ids, row, batch.lengths)));
    });
  }

  Corpus train;
  OfHeldOut<Corpus> held_out;
};

struct ImageData {
  static constexpr const char* kUnit = "images";
  using Corpus = ImageCorpus;
  using Batches = ImageBatches;
  using Model = ImageModel;

  ImageData(Config& config, TokenizerPair&, const Report& report) {
    DataOptions& data = config.data;
    const auto told = [&](const ImageCorpus& images) {
      report_checksum(report, {std::as_bytes(std::span(images.pixels)),
                               std::as_bytes(std::span(images.labels))});
    };
    train = load_images(data.train, data.image.size, data.labels);
    told(train);
    const ImageFormat found = format_of(train);
    data.labels = train.label_names;
    data.image.size = found.size;
    if (data.image.mean.empty()) data.image = found;
    report(concat("training data: ", data.labels.size(), " classes, ", train.size(), " images of ",
                  train.image_size.str()));
    for (const HeldOut set : kHeldOut) {
      if (corpora_of(config, set).empty()) continue;
      held_out[set] = load_held_out(config, corpora_of(config, set), {});
      told(held_out[set]);
      report(concat(name_of(set), " data: ", held_out[set].size(), " images"));
    }
  }

  static Corpus load_held_out(const Config& config, const std::vector<CorpusSpec>& corpora,
                              const TokenizerPair&) {
    return load_images(corpora, config.data.image.size, config.data.labels);
  }

  static Batches batches(const Config& config, const Corpus& corpus, bool shuffle,
                         DataPosition start) {
    return Batches(corpus, config.data.image,
                   {.batch_size = config.batch.batch_size,
                    .shuffle = shuffle,
                    .seed = config.seed,
                    .augment = config.data.augment},
                   start);
  }
  static Var logits(const Model& model, const ImageBatch& batch) {
    return model.model(batch.pixels.to(model.store.dtype()).to(model.device()));
  }
  static int64_t tokens(const Model& model, const ImageBatch& batch) {
    return batch.rows * model.model.tokens();
  }
  static Sample sample(const Model& model, const Corpus& corpus, int64_t i) {
    const auto pixels = corpus.image(i);
    const Tensor image = normalised(pixels, model.config.data.image);
    const Var logits = model.model(image.to(model.store.dtype()).to(model.device()));
    Sample sample = sample_of(model.config.data.labels, probabilities_of(logits).at(0), {},
                              corpus.labels[static_cast<size_t>(i)]);
    sample.picture = {corpus.image_size, {pixels.begin(), pixels.end()}};
    return sample;
  }
  static std::vector<std::string> texts(const Model& model, const ImageBatch& batch) {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return concat("an image of ", label_of(batch.labels, row, model.config.data.labels));
    });
  }

  Corpus train;
  OfHeldOut<Corpus> held_out;
};

template <class Data, class Batch>
CrossEntropy loss_of(const typename Data::Model& model, const Batch& batch,
                     const CrossEntropyOptions& options) {
  return cross_entropy(Data::logits(model, batch), batch.labels, options);
}

/// Calls f(batch, logits) for each batch of a corpus, in order.
template <class Data, class F>
void for_each_batch(const typename Data::Model& model, const typename Data::Corpus& corpus, F f) {
  auto batches = Data::batches(model.config, corpus, /*shuffle=*/false, {});
  const int64_t count = batches.batches_in_epoch();
  Progress progress("classifying", count, "batches");
  for (int64_t i = 0; i < count; ++i, progress.add()) {
    const auto batch = batches.next();
    f(batch, Data::logits(model, batch));
  }
}

template <class Data>
LossSums loss_over(const typename Data::Model& model, const typename Data::Corpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group) {
  return loss_over_epoch(Data::batches(model.config, corpus, /*shuffle=*/false, {}), group,
                         [&](const auto& batch) { return loss_of<Data>(model, batch, options); });
}

// The same, with the predicted class of each example.
template <class Data>
std::map<std::string, double> measure_with_confusion(const typename Data::Model& model,
                                                     const typename Data::Corpus& corpus,
                                                     const CrossEntropyOptions& options,
                                                     const RankGroup& group,
                                                     ValidationDetails& details) {
  const std::vector<std::string>& names = model.config.data.labels;
  auto batches = Data::batches(model.config, corpus, /*shuffle=*/false, {});
  const int64_t count = batches.batches_in_epoch();
  std::vector<std::vector<int32_t>> own;  // for each batch its classes, then the predicted ones
  const LossSums sums = loss_over_epoch(std::move(batches), group, [&](const auto& batch) {
    const Var logits = Data::logits(model, batch);
    const std::vector<double> scores = logits.value().to(Device{}).template to_vector<double>();
    std::vector<int32_t> classes = batch.labels.template to_vector<int32_t>();
    const size_t rows = classes.size(), width = scores.size() / rows;
    for (size_t row = 0; row < rows; ++row) {
      const auto of_row = std::span(scores).subspan(row * width, width);
      classes.push_back(static_cast<int32_t>(std::ranges::max_element(of_row) - of_row.begin()));
    }
    own.push_back(std::move(classes));
    return cross_entropy(logits, batch.labels, options);
  });
  Confusion confusion{names, std::vector(names.size(), std::vector<int64_t>(names.size()))};
  for (const std::vector<int32_t>& classes : group.in_order(own, count)) {
    const size_t rows = classes.size() / 2;
    for (size_t row = 0; row < rows; ++row) {
      ++confusion.counts.at(static_cast<size_t>(classes[row]))
            .at(static_cast<size_t>(classes[rows + row]));
    }
  }
  details.confusion = std::move(confusion);
  return sums.metrics();
}

template <class Data>
Evaluation evaluate_kind(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora) {
  const auto model = Data::Model::load(std::move(files), device, "evaluate", kClassifies);
  const auto corpus = Data::load_held_out(model->config, corpora, model->tokenizers);
  if constexpr (requires { corpus.counts; }) warn_of_dropped(corpus.counts);
  const std::vector<std::string>& names = model->config.data.labels;
  LossSums sums;
  SampledRatio hits;  // over examples: batches are few
  ClassCounts counts(names);
  for_each_batch<Data>(*model, corpus, [&](const auto& batch, const Var& logits) {
    sums.add(cross_entropy(logits, batch.labels, {}));
    const std::vector<double> scores = logits.value().to(Device{}).template to_vector<double>();
    const std::vector<int32_t> labels = batch.labels.template to_vector<int32_t>();
    for (size_t row = 0; row < labels.size(); ++row) {
      const auto of_row = std::span(scores).subspan(row * names.size(), names.size());
      hits.add(counts.add(labels[row], of_row) ? 1 : 0, 1);
    }
  });
  Evaluation result;
  result.classes = counts.scores();
  result.add("nll", sums.nll());
  result.add_percent("accuracy", hits);
  result.add_percent("macro_f1", result.classes->macro_f1);
  result.add_percent("weighted_f1", result.classes->weighted_f1);
  for (const int64_t k : {2, 3, 5}) {
    if (k < std::ssize(names)) {
      result.add_percent(concat("top_", k, "_accuracy"), counts.top_k_accuracy(k));
    }
  }
  result.add_count(Data::kUnit, corpus.size());
  return result;
}

template <class Data>
struct ClassKind {
  using Corpus = typename Data::Corpus;
  using Batch = decltype(std::declval<typename Data::Batches&>().next());

  ClassKind(Config config, TokenizerPair tokenizers, const Report& report) {
    Data data(config, tokenizers, report);
    model =
        std::make_unique<typename Data::Model>(config, std::move(tokenizers), ModelUse::kTraining);
    train = std::move(data.train);
    held_out = std::move(data.held_out);
  }

  typename Data::Batches batches(DataPosition start) const {
    return Data::batches(model->config, train, /*shuffle=*/true, std::move(start));
  }
  UpdateSize size_of(const Batch& batch) const {
    return {.tokens = Data::tokens(*model, batch), .targets = static_cast<double>(batch.rows)};
  }
  CrossEntropy loss(const Batch& batch, const CrossEntropyOptions& options) const {
    return loss_in_passes(model->config, batch, batch.labels, options,
                          [&](const Batch& given) { return Data::logits(*model, given); });
  }
  std::vector<std::string> texts(const Batch& batch) const { return Data::texts(*model, batch); }
  std::map<std::string, double> measure(const Corpus& corpus, const CrossEntropyOptions& options,
                                        const RankGroup& group, ValidationDetails* details) const {
    show_samples(details, [&] {
      std::vector<Sample> samples;
      for (const int64_t i : shown_examples(details->wanted, corpus.size())) {
        samples.push_back(Data::sample(*model, corpus, i));
      }
      return samples;
    });
    if (details == nullptr || model->config.data.labels.size() > ValidationDetails::kMostClasses) {
      return loss_over<Data>(*model, corpus, options, group).metrics();
    }
    return measure_with_confusion<Data>(*model, corpus, options, group, *details);
  }
  int64_t choices() const { return std::ssize(model->config.data.labels); }

  std::unique_ptr<typename Data::Model> model;
  Corpus train;
  OfHeldOut<Corpus> held_out;
};

}  // namespace

extern const Task kClassification({.name = "classification",
                                   .abilities = kClassifies,
                                   .metrics = {"accuracy", "nll", "loss"},
                                   .bind_corpus = bind_labelled},
                                  {{&kLabelledExamples,
                                    {&kTextClassifierModel},
                                    make_supervised<ClassKind<TextData>>,
                                    evaluate_kind<TextData>},
                                   {&kImageExamples,
                                    {&kVisionTransformerModel, &kLinearClassifierModel},
                                    make_supervised<ClassKind<ImageData>>,
                                    evaluate_kind<ImageData>}});

}  // namespace tapestry
