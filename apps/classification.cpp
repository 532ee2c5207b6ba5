#include "apps/classification.h"

#include "data/labelled.h"
#include "data/loader.h"

namespace tapestry {
namespace {

class ClassificationTask : public TrainingTask {
 public:
  ClassificationTask(Config config, TokenizerPair given, DataPosition start, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    CorpusOptions options = config.data.corpus;
    train_ = load_labelled(config.data.train, *tokenizers.source, options, config.data.labels);
    report(concat("training data: ", train_.label_names.size(), " classes; ",
                  train_.counts.summary()));
    config.data.labels = train_.label_names;  // a checkpoint tells its classes
    if (!config.data.valid.empty()) {
      options.overlong = "truncate";
      valid_ = load_labelled(config.data.valid, *tokenizers.source, options, train_.label_names);
      report("validation data: " + valid_.counts.summary());
    }
    model_ = std::make_unique<TextClassifier>(config, std::move(tokenizers));
    loader_ = std::make_unique<Loader<LabelledBatches>>(train_, config.batch, start);
  }
  // The loader's thread reads the corpus.
  ~ClassificationTask() override { loader_.reset(); }

  ParamStore& parameters() override { return model_->store; }

  UpdateSize next_update(int64_t micro_batches) override {
    UpdateSize size{.micro_batches = micro_batches};
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      update_.push_back(loader_->next().batch);
      size.tokens += update_.back().tokens;
      size.targets += update_.back().rows;
    }
    return size;
  }
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    return loss_of(update_.at(static_cast<size_t>(i)), options);
  }
  DataPosition position() const override { return loader_->position(); }

  std::map<std::string, double> validate(const CrossEntropyOptions& options) override {
    if (valid_.size() == 0) return {};
    BatchOptions in_order = model_->config.batch;
    in_order.shuffle = false;
    LabelledBatches batches(valid_, in_order);
    LossSums sums;
    for (int64_t i = batches.batches_in_epoch(); i > 0; --i) {
      sums.add(loss_of(batches.next(), options));
    }
    return sums.metrics();
  }
  std::map<std::string, std::string> files() const override { return model_->files(); }

 private:
  CrossEntropy loss_of(const LabelledBatch& batch, const CrossEntropyOptions& options) const {
    const Device device = model_->device();
    return cross_entropy(model_->model(batch.ids.to(device), batch.lengths.to(device)),
                         batch.labels.to(device), options);
  }

  LabelledCorpus train_, valid_;
  std::unique_ptr<TextClassifier> model_;
  std::unique_ptr<Loader<LabelledBatches>> loader_;
  std::vector<LabelledBatch> update_;
};

}  // namespace

std::unique_ptr<TrainingTask> make_classification_task(const Config& config,
                                                       TokenizerPair tokenizers, DataPosition start,
                                                       const Report& report) {
  return std::make_unique<ClassificationTask>(config, std::move(tokenizers), start, report);
}

std::vector<std::vector<double>> classify(const TextClassifier& model,
                                          const std::vector<std::vector<int32_t>>& texts) {
  std::vector<std::vector<double>> results;
  for (const std::vector<int32_t>& text : texts) {
    std::vector<int32_t> ids = {kBosId};
    ids.insert(ids.end(), text.begin(), text.end());
    ids.push_back(kEosId);
    const auto count = static_cast<int64_t>(ids.size());
    if (count > model.config.model.max_position_embeddings) {
      fail(ErrorKind::kData, "[classify] line ", results.size() + 1, " has ", count,
           " tokens, the model's positions end at ", model.config.model.max_position_embeddings,
           '.');
    }
    const Device device = model.device();
    const Tensor lengths = Tensor::full({1}, static_cast<double>(count), DType::kInt32);
    const Var logits = model.model(Tensor::from(ids, {1, count}).to(device), lengths.to(device));
    results.push_back(softmax(logits).value().to(Device{}).to(DType::kFloat64).to_vector<double>());
  }
  return results;
}

}  // namespace tapestry
