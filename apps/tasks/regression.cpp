#include "apps/tasks/regression.h"

#include <cmath>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/parameters.h"
#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "data/batching.h"

namespace tapestry {
namespace {

// The mean of the squared errors. Without likelihood and counts: those sums are 0.
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

// The mean squared error, and with classes the share of points whose largest output is their class.
std::map<std::string, double> metrics_of(const RegressionModel& model, const Points& points) {
  const std::vector<double> predicted = model.predict(points.x);
  const auto outputs = static_cast<size_t>(model.outputs());
  double squares = 0, correct = 0;
  for (size_t i = 0; i < points.y.size(); ++i) {
    const double* const row = predicted.data() + i * outputs;
    for (size_t c = 0; c < outputs; ++c) {
      const double truth =
          points.classes.empty() ? points.y[i] : c == static_cast<size_t>(points.y[i]);
      squares += (row[c] - truth) * (row[c] - truth);
    }
    if (points.classes.empty()) continue;
    correct += std::max_element(row, row + outputs) == row + static_cast<size_t>(points.y[i]);
  }
  const auto count = static_cast<double>(points.size());
  std::map<std::string, double> metrics = {{"mse", squares / count}};
  if (!points.classes.empty()) metrics["accuracy"] = 100 * correct / count;
  return metrics;
}

// Points to measure a model with.
Points points_for(const RegressionModel& model, const std::vector<CorpusSpec>& corpora) {
  Points points = load_points(corpora, model.points.classes);
  const auto kind_of = [](const Points& some) {
    return concat(some.features, some.features == 1 ? " column" : " columns", " of x and a ",
                  some.classes.empty() ? "number" : "class", " of each");
  };
  if (kind_of(points) != kind_of(model.points)) {
    fail(ErrorKind::kConfig, "[data] ", corpora.front().str(), " has points of ", kind_of(points),
         ", the model's points have ", kind_of(model.points), '.');
  }
  return points;
}

class RegressionTask : public TrainingTask {
 public:
  RegressionTask(const Config& config, const TaskPlace& place, const Report& report)
      : share_(place.share),
        model_(config, load_points(config.data.train), ModelUse::kTraining),
        plans_(EpochPlans::of_equal_rows(
            {.rows = [points = model_.points.size()](int64_t) { return points; },
             .batch_size = config.batch.batch_size,
             .shuffle = config.batch.shuffle,
             .seed = config.batch.seed})),
        walk_(plans_, place.start) {
    const auto told = [&](const std::string& what, const Points& points) {
      report_checksum(report,
                      {std::as_bytes(std::span(points.x)), std::as_bytes(std::span(points.y))});
      report(concat(what, ": ", points.size(), " points; ", points.counts.summary()));
      report_each_corpus(points.counts, report);
      warn_of_counts(what, points.counts, report);
    };
    told("training data", model_.points);
    for (const HeldOut set : kHeldOut) {
      if (corpora_of(config, set).empty()) continue;
      held_out_[set] = points_for(model_, corpora_of(config, set));
      told(concat(name_of(set), " data"), held_out_[set]);
    }
  }

  ParamStore& parameters() override { return model_.store; }

  UpdateSize next_update(int64_t micro_batches) override {
    UpdateSize size{.micro_batches = micro_batches};
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      if (i % share_.count == 0) walk_.skip(share_.first);
      const auto rows = walk_.next();
      update_.emplace_back(rows.begin(), rows.end());
      size.tokens += static_cast<int64_t>(rows.size());
      if ((i + 1) % share_.count == 0) walk_.skip(share_.of - share_.first - share_.count);
    }
    size.targets = static_cast<double>(size.tokens);
    return size;
  }

  // A point must not see itself: the width would shrink to nothing, because each point knows its
  // own y.
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    const std::vector<int64_t>& rows = update_.at(static_cast<size_t>(i));
    const int64_t count = static_cast<int64_t>(rows.size()), points = model_.points.size();
    std::vector<double> x, y;
    std::vector<int32_t> own(static_cast<size_t>(count * points), 0);
    for (const int64_t row : rows) {
      own[y.size() * static_cast<size_t>(points) + static_cast<size_t>(row)] = 1;
      const auto features = model_.points.x.begin() + row * model_.points.features;
      x.insert(x.end(), features, features + model_.points.features);
      y.push_back(model_.points.y[static_cast<size_t>(row)]);
    }
    const Tensor mask = Tensor::from(own, {count, points}).to(model_.store.device());
    return squared_error(
        model_.pooling(model_.rows(x, model_.points.features), model_.keys, model_.values, mask),
        model_.targets(y), options);
  }
  std::vector<std::string> texts(int64_t i) const override {
    std::vector<std::string> points;
    for (const int64_t row : update_.at(static_cast<size_t>(i))) {
      std::string text = concat(row + 1, ": ");
      for (int64_t f = 0; f < model_.points.features; ++f) {
        text +=
            concat(model_.points.x[static_cast<size_t>(row * model_.points.features + f)], ", ");
      }
      const double y = model_.points.y[static_cast<size_t>(row)];
      const std::vector<std::string>& classes = model_.points.classes;
      points.push_back(text + (classes.empty() ? concat(y) : classes[static_cast<size_t>(y)]));
    }
    return points;
  }
  DataPosition position() const override { return walk_.position(); }
  int64_t batches_in_epoch(const DataPosition& place) const override {
    return EpochWalk(plans_, place).batches_in_epoch();
  }

  int64_t examples(HeldOut set) const override { return held_out_[set].size(); }
  std::map<std::string, double> measure(HeldOut set, const CrossEntropyOptions&,
                                        ValidationDetails*) override {
    return metrics_of(model_, held_out_[set]);
  }
  std::map<std::string, std::string> files() const override { return model_.files(); }

 private:
  const Share share_;
  RegressionModel model_;
  OfHeldOut<Points> held_out_;
  EpochPlans plans_;
  EpochWalk walk_;
  std::vector<std::vector<int64_t>> update_;  // points of each micro-batch
};

std::unique_ptr<TrainingTask> make(const Config& config, TokenizerPair, const TaskPlace& place,
                                   const Report& report) {
  return std::make_unique<RegressionTask>(config, place, report);
}

Evaluation evaluate(ModelFiles files, const std::string& device,
                    const std::vector<CorpusSpec>& corpora) {
  const auto model = RegressionModel::load(std::move(files), device, "evaluate");
  const Points points = points_for(*model, corpora);
  warn_of_dropped(points.counts);
  Evaluation result;
  result.add(metrics_of(*model, points), {"mse", "accuracy"});
  result.add_count("points", points.size());
  return result;
}

// Points are few: an update sees all of them.
void set_defaults(Config& config) { config.batch.batch_size = 1024; }

}  // namespace

extern const Task kRegression({.name = "regression",
                               .abilities = kPredictsNumbers,
                               .metrics = {"mse", "accuracy"},
                               .bind_corpus = bind_points,
                               .reads_points = true,
                               .set_defaults = set_defaults},
                              {&kAttentionPoolingModel}, make, evaluate);

RegressionModel::RegressionModel(const Config& config, Points points, ModelUse use)
    : config(config),
      points(std::move(points)),
      store(make_store(config, use)),
      pooling(config.model.pooling, store.root()),
      keys(rows(this->points.x, this->points.features)),
      values(targets(this->points.y)) {}

std::unique_ptr<RegressionModel> RegressionModel::load(ModelFiles files, const std::string& device,
                                                       const std::string& who) {
  if (!files.config.task->can(kPredictsNumbers)) {
    fail(ErrorKind::kData, '[', who, "] expected a model of task ",
         tasks_that_can(kPredictsNumbers), ", ", files.folder, " holds one of task ",
         files.config.task->name, '.');
  }
  const std::string name = files.folder + '/' + kPointsFile;
  Checkpoint(files.folder).read(kPointsFile);  // verifies it
  files.config.device = device;
  // The training data decide the kind of points.
  const CorpusSpec& trained = files.config.data.train.front();
  Points kind;
  kind.features = static_cast<int64_t>(trained.features().size());
  if (!trained.class_column.empty()) kind.classes = {""};
  const CorpusSpec spec = kind.columns(name);
  auto model =
      std::make_unique<RegressionModel>(files.config, load_points({spec}), ModelUse::kAnswers);
  load_parameters(model->store, files.tensors);
  return model;
}

Tensor RegressionModel::rows(const std::vector<double>& values, int64_t columns) const {
  return Tensor::from(values, {static_cast<int64_t>(values.size()) / columns, columns})
      .to(store.dtype())
      .to(store.device());
}

Tensor RegressionModel::targets(const std::vector<double>& y) const {
  if (points.classes.empty()) return rows(y, 1);
  std::vector<double> shares(y.size() * points.classes.size(), 0);
  for (size_t i = 0; i < y.size(); ++i) {
    shares[i * points.classes.size() + static_cast<size_t>(y[i])] = 1;
  }
  return rows(shares, outputs());
}

std::vector<double> RegressionModel::predict(const std::vector<double>& x, Tensor* weights) const {
  if (x.empty()) return {};
  const Var shares = pooling.weights(rows(x, points.features), keys);
  if (weights != nullptr) *weights = shares.value().to(Device{});
  return matmul(shares, values).value().to_vector<double>();
}

double RegressionModel::width() const { return 1 / std::abs(pooling.inverse_width.value().item()); }

std::map<std::string, std::string> RegressionModel::files() const {
  return {{kConfigFile, to_json(config)}, {kPointsFile, points.csv()}};
}

}  // namespace tapestry
