#include "apps/tasks/classification.h"

#include <algorithm>
#include <iostream>

#include "apps/config/sections.h"
#include "apps/tasks/shape_flow.h"
#include "data/image_batching.h"
#include "data/labelled.h"
#include "data/loader.h"
#include "nn/gradcheck_models.h"

namespace tapestry {
namespace {

// The differences between texts and images. The constructors read the data and write what they
// learn from it (classes, image format) into the config, which the checkpoint keeps.

struct TextData {
  using Corpus = LabelledCorpus;
  using Batches = LabelledBatches;
  using Model = TextClassifier;

  TextData(Config& config, TokenizerPair& tokenizers, const Report& report) {
    tokenizers = prepare_tokenizers(config, std::move(tokenizers), report);
    CorpusOptions options = config.data.corpus;
    train = load_labelled(config.data.train, *tokenizers.source, options, config.data.labels,
                          load_context(config, report, "train"));
    report(summary_of(concat("training data: ", train.label_names.size(), " classes"), train));
    config.data.labels = train.label_names;
    if (config.data.valid.empty()) return;
    options.overlong = "truncate";
    valid = load_labelled(config.data.valid, *tokenizers.source, options, train.label_names,
                          load_context(config, report, "valid"));
    report(summary_of("validation data", valid));
  }

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

  Corpus train, valid;
};

struct ImageData {
  using Corpus = ImageCorpus;
  using Batches = ImageBatches;
  using Model = ImageModel;

  ImageData(Config& config, TokenizerPair&, const Report& report) {
    DataOptions& data = config.data;
    train = load_images(data.train, data.image.size, data.labels);
    const ImageFormat found = format_of(train);
    data.labels = train.label_names;
    data.image.size = found.size;
    if (data.image.mean.empty()) data.image = found;
    report(concat("training data: ", data.labels.size(), " classes, ", train.images(),
                  " images of ", train.size.str()));
    if (data.valid.empty()) return;
    valid = load_images(data.valid, train.size, train.label_names);
    report(concat("validation data: ", valid.images(), " images"));
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

  Corpus train, valid;
};

template <class Kind, class Batch>
CrossEntropy loss_of(const typename Kind::Model& model, const Batch& batch,
                     const CrossEntropyOptions& options) {
  return cross_entropy(Kind::logits(model, batch), batch.labels, options);
}

template <class Kind>
LossSums loss_over(const typename Kind::Model& model, const typename Kind::Corpus& corpus,
                   const CrossEntropyOptions& options) {
  auto batches = Kind::batches(model.config, corpus, /*shuffle=*/false, {});
  LossSums sums;
  for (int64_t i = batches.batches_in_epoch(); i > 0; --i) {
    sums.add(loss_of<Kind>(model, batches.next(), options));
  }
  return sums;
}

template <class Kind>
class ClassificationTask : public TrainingTask {
 public:
  ClassificationTask(Config config, TokenizerPair tokenizers, DataPosition start,
                     const Report& report)
      : data_(config, tokenizers, report),
        model_(config, std::move(tokenizers),
               training_precision(config, parse_device(config.device))),
        loader_(Kind::batches(config, data_.train, /*shuffle=*/true, start)) {}

  ParamStore& parameters() override { return model_.store; }

  UpdateSize next_update(int64_t micro_batches) override {
    UpdateSize size{.micro_batches = micro_batches};
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      update_.push_back(loader_.next().batch);
      size.tokens += Kind::tokens(model_, update_.back());
      size.targets += update_.back().rows;
    }
    return size;
  }
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    return loss_of<Kind>(model_, update_.at(static_cast<size_t>(i)), options);
  }
  DataPosition position() const override { return loader_.position(); }
  int64_t batches_in_epoch() const override {
    return Kind::batches(model_.config, data_.train, /*shuffle=*/true, {}).batches_in_epoch();
  }

  std::map<std::string, double> validate(const CrossEntropyOptions& options) override {
    if (model_.config.data.valid.empty()) return {};
    return loss_over<Kind>(model_, data_.valid, options).metrics();
  }
  std::map<std::string, std::string> files() const override { return model_.files(); }

 private:
  using Loader = tapestry::Loader<typename Kind::Batches>;

  const Kind data_;
  typename Kind::Model model_;
  Loader loader_;  // destroyed first: its thread reads the corpus
  std::vector<typename Loader::Batch> update_;
};

// logits (1, classes)
ClassProbabilities probabilities_of(const Var& logits) {
  return softmax(logits).value().to_vector<double>();
}

std::unique_ptr<TrainingTask> make(const Config& config, TokenizerPair tokenizers,
                                   DataPosition start, const Report& report) {
  if (reads_images(config)) {
    return std::make_unique<ClassificationTask<ImageData>>(config, std::move(tokenizers), start,
                                                           report);
  }
  return std::make_unique<ClassificationTask<TextData>>(config, std::move(tokenizers), start,
                                                        report);
}

std::shared_ptr<const ParamStore> parameters(const Config& config,
                                             const TokenizerPair& tokenizers) {
  if (reads_images(config)) return parameters_of<ImageClassifier>(config, tokenizers);
  return parameters_of<SequenceClassifier>(config, tokenizers);
}

std::string shapes(const Config& config, const TokenizerPair& tokenizers) {
  if (reads_images(config)) return shape_flow<ImageClassifier>(config, tokenizers);
  return shape_flow<SequenceClassifier>(config, tokenizers);
}

GradcheckCase gradcheck_case(const std::string& name, ModelType type, const ModelOptions& options) {
  if (type == ModelType::kVit) return vision_transformer_gradcheck(name, options);
  if (type == ModelType::kLinear) return linear_classifier_gradcheck(name, options);
  return classifier_gradcheck(name, options);
}

}  // namespace

extern const Task kClassification{{.name = "classification",
                                   .abilities = kClassifies,
                                   .models = {ModelType::kEncoder},
                                   .image_models = {ModelType::kVit, ModelType::kLinear},
                                   .metrics = {"accuracy", "nll", "loss"},
                                   .bind_corpus = bind_labelled,
                                   .has_classes = true},
                                  make,
                                  parameters,
                                  gradcheck_case,
                                  shapes};

std::vector<int32_t> classifier_input(const TextClassifier& model, const std::string& text,
                                      int64_t line) {
  const std::vector<int32_t> tokens = model.tokenizers.source->encode(text);
  // Truncated like the lines of a validation set, so that its accuracy holds here too.
  const auto longest = static_cast<size_t>(model.config.data.corpus.max_length) - 2;
  if (tokens.size() > longest) {
    std::cerr << "warning: line " << line << " of " << tokens.size() << " tokens is cut to "
              << longest << '\n';
  }
  std::vector<int32_t> ids = {kBosId};
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + std::min(tokens.size(), longest));
  ids.push_back(kEosId);
  return ids;
}

ClassProbabilities classify(const TextClassifier& model, const std::vector<int32_t>& ids) {
  const auto count = static_cast<int64_t>(ids.size());
  const Device device = model.device();
  const Tensor lengths = Tensor::full({1}, static_cast<double>(count), DType::kInt32);
  return probabilities_of(
      model.model(Tensor::from(ids, {1, count}).to(device), lengths.to(device)));
}

ClassProbabilities classify(const ImageModel& model, const std::string& path) {
  ImageSize size = model.config.data.image.size;
  const Tensor pixels = normalised(read_image(path, size), model.config.data.image);
  return probabilities_of(model.model(pixels.to(model.store.dtype()).to(model.device())));
}

LossSums measure(const ImageModel& model, const ImageCorpus& images,
                 const CrossEntropyOptions& options) {
  return loss_over<ImageData>(model, images, options);
}

}  // namespace tapestry
