#include "apps/tasks/classification.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/micro_batches.h"
#include "apps/tasks/models.h"
#include "data/empty_text.h"
#include "data/image_batching.h"
#include "data/labelled.h"
#include "data/loader.h"

namespace tapestry {
namespace {

// logits (B, classes)
std::vector<ClassProbabilities> probabilities_of(const Var& logits) {
  const int64_t classes = logits.shape()[1];
  const std::vector<double> all = softmax(logits).value().to_vector<double>();
  std::vector<ClassProbabilities> rows;
  for (auto row = all.begin(); row != all.end(); row += classes) {
    rows.emplace_back(row, row + classes);
  }
  return rows;
}

Sample sample_of(const std::vector<std::string>& classes, const ClassProbabilities& probabilities,
                 std::vector<std::pair<std::string, std::string>> given, int32_t truth) {
  Sample sample{.given = std::move(given)};
  sample.given.emplace_back("class", classes.at(static_cast<size_t>(truth)));
  sample.guesses = best_guesses(classes, probabilities);
  sample.output = sample.guesses.at(0).first;
  return sample;
}

// The differences between texts and images. The constructors read the data and write what they
// learn from it (classes, image format) into the config, which the checkpoint keeps.

struct TextData {
  using Corpus = LabelledCorpus;
  using Batches = LabelledBatches;
  using Model = TextClassifier;

  TextData(Config& config, TokenizerPair& tokenizers, const Report& report) {
    tokenizers = prepare_tokenizers(config, std::move(tokenizers), report);
    train = load_labelled(config.data.train, *tokenizers.source, config.data.corpus,
                          config.data.labels, load_context(config, report, "train"));
    report_counts(concat("training data: ", train.label_names.size(), " classes"), train, report);
    config.data.labels = train.label_names;
    for (const HeldOut set : kHeldOut) {
      if (corpora_of(config, set).empty()) continue;
      held_out[set] = load_held_out(config, corpora_of(config, set), tokenizers,
                                    load_context(config, report, set));
      report_held_out(set, held_out[set], report);
    }
  }

  static Corpus load_held_out(const Config& config, const std::vector<CorpusSpec>& corpora,
                              const TokenizerPair& tokenizers, const LoadContext& context = {}) {
    CorpusOptions options = config.data.corpus;
    options.overlong = "truncate";
    return load_labelled(corpora, *tokenizers.source, options, config.data.labels, context);
  }
  static int64_t examples(const Corpus& corpus) { return corpus.size(); }

  static Batches batches(const Config& config, const Corpus& corpus, bool shuffle,
                         DataPosition start) {
    BatchOptions options = config.batch;
    options.shuffle = shuffle;
    return Batches(corpus, options, start);
  }
  static Var logits(const Model& model, const LabelledBatch& batch) {
    return model.model(batch.ids.to(model.device()), batch.lengths.to(model.device()));
  }
  static int64_t tokens(const Model&, const LabelledBatch& batch) { return batch.tokens; }
  static Sample sample(const Model& model, const Corpus& corpus, int64_t i) {
    const auto tokens = corpus.tokens[i];
    const TextFrame& frame = model.tokenizers.source->special().classified();
    const std::vector<int32_t> text(tokens.begin(), tokens.end());
    return sample_of(model.config.data.labels, classify(model, {in_frame(frame, text)}).at(0),
                     {{"text", model.tokenizers.source->decode(text)}}, corpus.label(i));
  }
  static std::vector<std::string> texts(const Model& model, const LabelledBatch& batch) {
    return texts_of(batch, *model.tokenizers.source, model.config.data.labels);
  }

  Corpus train;
  OfHeldOut<Corpus> held_out;
};

struct ImageData {
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
    report(concat("training data: ", data.labels.size(), " classes, ", train.images(),
                  " images of ", train.size.str()));
    for (const HeldOut set : kHeldOut) {
      if (corpora_of(config, set).empty()) continue;
      held_out[set] = load_held_out(config, corpora_of(config, set), {});
      told(held_out[set]);
      report(concat(name_of(set), " data: ", held_out[set].images(), " images"));
    }
  }

  static Corpus load_held_out(const Config& config, const std::vector<CorpusSpec>& corpora,
                              const TokenizerPair&) {
    return load_images(corpora, config.data.image.size, config.data.labels);
  }
  static int64_t examples(const Corpus& corpus) { return corpus.images(); }

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
    sample.picture = {corpus.size, {pixels.begin(), pixels.end()}};
    return sample;
  }
  static std::vector<std::string> texts(const Model& model, const ImageBatch& batch) {
    return texts_of(batch, model.config.data.labels);
  }

  Corpus train;
  OfHeldOut<Corpus> held_out;
};

template <class Kind, class Batch>
CrossEntropy loss_of(const typename Kind::Model& model, const Batch& batch,
                     const CrossEntropyOptions& options) {
  return cross_entropy(Kind::logits(model, batch), batch.labels, options);
}

/// Calls f(batch, logits) for each batch of a corpus, in order.
template <class Kind, class F>
void for_each_batch(const typename Kind::Model& model, const typename Kind::Corpus& corpus, F f) {
  auto batches = Kind::batches(model.config, corpus, /*shuffle=*/false, {});
  const int64_t count = batches.batches_in_epoch();
  Progress progress("classifying", count, "batches");
  for (int64_t i = 0; i < count; ++i, progress.add()) {
    const auto batch = batches.next();
    f(batch, Kind::logits(model, batch));
  }
}

template <class Kind>
LossSums loss_over(const typename Kind::Model& model, const typename Kind::Corpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group) {
  return loss_over_epoch(Kind::batches(model.config, corpus, /*shuffle=*/false, {}), group,
                         [&](const auto& batch) { return loss_of<Kind>(model, batch, options); });
}

// The same, with the predicted class of each example.
template <class Kind>
std::map<std::string, double> measure_with_confusion(const typename Kind::Model& model,
                                                     const typename Kind::Corpus& corpus,
                                                     const CrossEntropyOptions& options,
                                                     const RankGroup& group,
                                                     ValidationDetails& details) {
  const std::vector<std::string>& names = model.config.data.labels;
  auto batches = Kind::batches(model.config, corpus, /*shuffle=*/false, {});
  const int64_t count = batches.batches_in_epoch();
  std::vector<std::string> own;  // for each batch its classes, then the predicted ones
  const LossSums sums = loss_over_epoch(std::move(batches), group, [&](const auto& batch) {
    const Var logits = Kind::logits(model, batch);
    const std::vector<double> scores = logits.value().to(Device{}).template to_vector<double>();
    std::vector<int32_t> classes = batch.labels.template to_vector<int32_t>();
    const size_t rows = classes.size(), width = scores.size() / rows;
    for (size_t row = 0; row < rows; ++row) {
      const auto of_row = std::span(scores).subspan(row * width, width);
      classes.push_back(static_cast<int32_t>(std::ranges::max_element(of_row) - of_row.begin()));
    }
    own.emplace_back(reinterpret_cast<const char*>(classes.data()),
                     classes.size() * sizeof(int32_t));
    return cross_entropy(logits, batch.labels, options);
  });
  const std::vector<std::string> all = group.in_order(own, count);
  Confusion confusion{names, std::vector(names.size(), std::vector<int64_t>(names.size()))};
  for (const std::string& bytes : all) {
    std::vector<int32_t> classes(bytes.size() / sizeof(int32_t));
    std::memcpy(classes.data(), bytes.data(), bytes.size());
    const size_t rows = classes.size() / 2;
    for (size_t row = 0; row < rows; ++row) {
      ++confusion.counts.at(static_cast<size_t>(classes[row]))
            .at(static_cast<size_t>(classes[rows + row]));
    }
  }
  details.confusion = std::move(confusion);
  return sums.metrics();
}

template <class Kind>
Evaluation evaluate_kind(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora, const char* unit) {
  const auto model = Kind::Model::load(std::move(files), device, "evaluate", kClassifies);
  const auto corpus = Kind::load_held_out(model->config, corpora, model->tokenizers);
  if constexpr (requires { corpus.counts; }) warn_of_dropped(corpus.counts);
  const std::vector<std::string>& names = model->config.data.labels;
  LossSums sums;
  ClassCounts counts(names);
  for_each_batch<Kind>(*model, corpus, [&](const auto& batch, const Var& logits) {
    sums.add(cross_entropy(logits, batch.labels, {}));
    const std::vector<double> scores = logits.value().to(Device{}).template to_vector<double>();
    const std::vector<int32_t> labels = batch.labels.template to_vector<int32_t>();
    for (size_t row = 0; row < labels.size(); ++row) {
      counts.add(labels[row], std::span(scores).subspan(row * names.size(), names.size()));
    }
  });
  Evaluation result;
  result.classes = counts.scores();
  result.add(sums.metrics(), {"nll", "accuracy"});
  result.add_percent("macro_f1", result.classes->macro_f1);
  result.add_percent("weighted_f1", result.classes->weighted_f1);
  for (const int64_t k : {2, 3, 5}) {
    if (k < std::ssize(names)) {
      result.add_percent(concat("top_", k, "_accuracy"), counts.top_k_accuracy(k));
    }
  }
  result.add_count(unit, Kind::examples(corpus));
  return result;
}

template <class Kind>
class ClassificationTask : public TrainingTask {
 public:
  ClassificationTask(Config config, TokenizerPair tokenizers, const TaskPlace& place,
                     const Report& report)
      : group_(place.group),
        data_(config, tokenizers, report),
        model_(config, std::move(tokenizers), ModelUse::kTraining),
        loader_(Kind::batches(config, data_.train, /*shuffle=*/true, place.start), place.share) {}

  ParamStore& parameters() override { return model_.store; }

  UpdateSize next_update(int64_t micro_batches) override {
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      append_in_parts(loader_.next().batch, model_.config.training.splits, update_);
    }
    UpdateSize size{.micro_batches = std::ssize(update_)};
    for (const auto& batch : update_) {
      size.tokens += Kind::tokens(model_, batch);
      size.targets += static_cast<double>(batch.rows);
    }
    return size;
  }
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    return loss_of<Kind>(model_, update_.at(static_cast<size_t>(i)), options);
  }
  std::vector<std::string> texts(int64_t i) const override {
    return Kind::texts(model_, update_.at(static_cast<size_t>(i)));
  }
  DataPosition position() const override { return loader_.position(); }
  int64_t batches_in_epoch(const DataPosition& place) const override {
    return Kind::batches(model_.config, data_.train, /*shuffle=*/true, place).batches_in_epoch();
  }

  int64_t examples(HeldOut set) const override { return Kind::examples(data_.held_out[set]); }
  std::map<std::string, double> measure(HeldOut set, const CrossEntropyOptions& options,
                                        ValidationDetails* details) override {
    const auto& corpus = data_.held_out[set];
    show_samples(details, [&] {
      std::vector<Sample> samples;
      for (const int64_t i : shown_examples(details->wanted, Kind::examples(corpus))) {
        samples.push_back(Kind::sample(model_, corpus, i));
      }
      return samples;
    });
    if (details == nullptr || model_.config.data.labels.size() > ValidationDetails::kMostClasses) {
      return loss_over<Kind>(model_, corpus, options, group_).metrics();
    }
    return measure_with_confusion<Kind>(model_, corpus, options, group_, *details);
  }
  double uniform_nll() const override {
    return std::log(static_cast<double>(model_.config.data.labels.size()));
  }
  std::map<std::string, std::string> files() const override { return model_.files(); }

 private:
  using Loader = tapestry::Loader<typename Kind::Batches>;

  const RankGroup group_;
  const Kind data_;
  typename Kind::Model model_;
  Loader loader_;  // destroyed first: its thread reads the corpus
  std::vector<typename Loader::Batch> update_;
};

std::unique_ptr<TrainingTask> make(const Config& config, TokenizerPair tokenizers,
                                   const TaskPlace& place, const Report& report) {
  if (reads_images(config)) {
    return std::make_unique<ClassificationTask<ImageData>>(config, std::move(tokenizers), place,
                                                           report);
  }
  return std::make_unique<ClassificationTask<TextData>>(config, std::move(tokenizers), place,
                                                        report);
}

Evaluation evaluate(ModelFiles files, const std::string& device,
                    const std::vector<CorpusSpec>& corpora) {
  if (reads_images(files.config)) {
    return evaluate_kind<ImageData>(std::move(files), device, corpora, "images");
  }
  return evaluate_kind<TextData>(std::move(files), device, corpora, "texts");
}

}  // namespace

extern const Task kClassification({.name = "classification",
                                   .abilities = kClassifies,
                                   .metrics = {"accuracy", "nll", "loss"},
                                   .bind_corpus = bind_labelled,
                                   .has_classes = true},
                                  {&kTextClassifierModel, &kVisionTransformerModel,
                                   &kLinearClassifierModel},
                                  make, evaluate);

std::vector<int32_t> classifier_input(const TextClassifier& model, const std::string& text,
                                      int64_t line) {
  std::vector<int32_t> tokens = model.tokenizers.source->encode(text);
  if (is_empty_text(text, tokens)) return {};
  // Truncated like the lines of a validation set, so that its accuracy holds here too.
  const TextFrame frame = model.tokenizers.source->special().classified();
  cut_long_line(tokens, model.config.data.corpus.max_length - frame.size(), place_of_line(line));
  return in_frame(frame, tokens);
}

std::vector<ClassProbabilities> classify(const TextClassifier& model,
                                         const std::vector<std::vector<int32_t>>& texts) {
  int64_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  const int32_t filler = model.tokenizers.source->special().filler();
  const Tensor ids = Tensor::full({std::ssize(texts), longest}, filler, DType::kInt32);
  std::vector<int32_t> lengths;
  for (const auto& text : texts) {
    std::copy(text.begin(), text.end(), ids.data<int32_t>() + std::ssize(lengths) * longest);
    lengths.push_back(static_cast<int32_t>(text.size()));
  }
  const Device device = model.device();
  return probabilities_of(
      model.model(ids.to(device), Tensor::from(lengths, {std::ssize(lengths)}).to(device)));
}

ClassProbabilities classify(const ImageModel& model, const std::string& path) {
  ImageSize size = model.config.data.image.size;
  const Tensor pixels = normalised(read_image(path, size), model.config.data.image);
  return probabilities_of(model.model(pixels.to(model.store.dtype()).to(model.device()))).at(0);
}

}  // namespace tapestry
