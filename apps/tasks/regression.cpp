#include "apps/tasks/regression.h"

#include <cmath>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/parameters.h"
#include "apps/config/sections.h"
#include "apps/tasks/task.h"
#include "data/batching.h"
#include "nn/gradcheck_models.h"

namespace tapestry {
namespace {

// The mean of the squared errors. It has no likelihood and nothing to count: those sums are 0.
CrossEntropy squared_error(const Var& predicted, const Tensor& truth,
                           const CrossEntropyOptions& options) {
  const Var error = sub(predicted, truth);
  const Var total = sum(mul(error, error));
  const double sum_of_squares = total.value().item();
  CrossEntropy result;
  result.tokens = truth.shape()[0];
  const double count =
      options.normalizer > 0 ? options.normalizer : static_cast<double>(result.tokens);
  result.loss = affine(total, 1 / count, 0);
  result.sums = Tensor::from<double>({sum_of_squares, 0, 0}, {3}).to(truth.device());
  return result;
}

class RegressionTask : public TrainingTask {
 public:
  RegressionTask(const Config& config, DataPosition start, const Report& report)
      : model_(config, load_points(config.data.train)),
        walk_(EpochPlans::of_equal_rows([points = model_.points.size()](int64_t) { return points; },
                                        config.batch.batch_size, config.batch.shuffle,
                                        config.batch.seed),
              start) {
    report(concat("training data: ", model_.points.size(), " points"));
    if (config.data.valid.empty()) return;
    valid_ = load_points(config.data.valid);
    report(concat("validation data: ", valid_.size(), " points"));
  }

  ParamStore& parameters() override { return model_.store; }

  UpdateSize next_update(int64_t micro_batches) override {
    UpdateSize size{.micro_batches = micro_batches};
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      const auto rows = walk_.next();
      update_.emplace_back(rows.begin(), rows.end());
      size.tokens += static_cast<int64_t>(rows.size());
    }
    size.targets = size.tokens;
    return size;
  }

  // A point must not see itself: the width would shrink to nothing, where each knows its own y.
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    const std::vector<int64_t>& rows = update_.at(static_cast<size_t>(i));
    const int64_t count = static_cast<int64_t>(rows.size()), points = model_.points.size();
    std::vector<double> x, y;
    std::vector<int32_t> own(static_cast<size_t>(count * points), 0);
    for (const int64_t row : rows) {
      own[x.size() * static_cast<size_t>(points) + static_cast<size_t>(row)] = 1;
      x.push_back(model_.points.x[static_cast<size_t>(row)]);
      y.push_back(model_.points.y[static_cast<size_t>(row)]);
    }
    const Tensor mask = Tensor::from(own, {count, points}).to(model_.store.device());
    return squared_error(model_.pooling(model_.column(x), model_.keys, model_.values, mask),
                         model_.column(y), options);
  }
  DataPosition position() const override { return walk_.position(); }
  int64_t batches_in_epoch() const override { return walk_.batches_in_epoch(); }

  std::map<std::string, double> validate(const CrossEntropyOptions&) override {
    if (valid_.size() == 0) return {};
    const std::vector<double> predicted = model_.predict(valid_.x);
    double squares = 0;
    for (size_t i = 0; i < predicted.size(); ++i) {
      squares += (predicted[i] - valid_.y[i]) * (predicted[i] - valid_.y[i]);
    }
    return {{"mse", squares / static_cast<double>(predicted.size())}};
  }
  std::map<std::string, std::string> files() const override { return model_.files(); }

 private:
  RegressionModel model_;
  Points valid_;
  EpochWalk walk_;
  std::vector<std::vector<int64_t>> update_;  // points of each micro-batch
};

std::unique_ptr<TrainingTask> make(const Config& config, TokenizerPair, DataPosition start,
                                   const Report& report) {
  return std::make_unique<RegressionTask>(config, start, report);
}

std::shared_ptr<const ParamStore> parameters(const Config& config, const TokenizerPair&) {
  const auto model = std::make_shared<RegressionModel>(config, Points{{0}, {0}});
  return {model, &model->store};
}

GradcheckCase gradcheck_case(const std::string& name, ModelType, const ModelOptions& options) {
  return attention_pooling_gradcheck(name, options);
}

// Points are few: an update sees all of them.
void set_defaults(Config& config) { config.batch.batch_size = 1024; }

}  // namespace

extern const Task kRegression{{.name = "regression",
                               .abilities = kPredictsNumbers,
                               .models = {ModelType::kAttentionPooling},
                               .metrics = {"mse"},
                               .bind_corpus = bind_points,
                               .reads_points = true,
                               .set_defaults = set_defaults},
                              make,
                              parameters,
                              gradcheck_case};

RegressionModel::RegressionModel(const Config& config, Points points)
    : config(config),
      points(std::move(points)),
      store(config.seed, tensor_dtype(config, parse_device(config.device)),
            parse_device(config.device)),
      pooling(config.model.pooling, store.root()),
      keys(column(this->points.x)),
      values(column(this->points.y)) {}

std::unique_ptr<RegressionModel> RegressionModel::load(const std::string& path,
                                                       const std::string& device) {
  ModelFiles files = read_model_files(path);
  if (!files.config.task->can(kPredictsNumbers)) {
    fail(ErrorKind::kData, "[predict] expected a model of task ", tasks_that_can(kPredictsNumbers),
         ", ", files.folder, " holds one of task ", files.config.task->name, '.');
  }
  const std::string name = files.folder + '/' + kPointsFile;
  Checkpoint(files.folder).read(kPointsFile);  // verifies it
  CorpusSpec spec;
  spec.csv = name;
  files.config.device = device;
  auto model = std::make_unique<RegressionModel>(files.config, load_points({spec}));
  load_parameters(model->store, files.tensors);
  return model;
}

Tensor RegressionModel::column(const std::vector<double>& values) const {
  return Tensor::from(values, {static_cast<int64_t>(values.size()), 1})
      .to(store.dtype())
      .to(store.device());
}

std::vector<double> RegressionModel::predict(const std::vector<double>& x, Tensor* weights) const {
  if (x.empty()) return {};
  const Var shares = pooling.weights(column(x), keys);
  if (weights != nullptr) *weights = shares.value().to(Device{});
  return matmul(shares, values).value().to_vector<double>();
}

double RegressionModel::width() const { return 1 / std::abs(pooling.inverse_width.value().item()); }

std::map<std::string, std::string> RegressionModel::files() const {
  return {{kConfigFile, to_json(config)}, {kPointsFile, points.csv()}};
}

}  // namespace tapestry
