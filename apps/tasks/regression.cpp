#include "apps/tasks/regression.h"

#include <cmath>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/parameters.h"
#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"

namespace tapestry {
namespace {

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

struct PointKind {
  PointKind(const Config& config, TokenizerPair, const Report& report)
      : model(std::make_unique<RegressionModel>(config, load_points(config.data.train),
                                                ModelUse::kTraining)) {
    const auto told = [&](const std::string& what, const Points& points) {
      report_checksum(report,
                      {std::as_bytes(std::span(points.x)), std::as_bytes(std::span(points.y))});
      report(concat(what, ": ", points.size(), " points; ", points.counts.summary()));
      report_each_corpus(points.counts, report);
      warn_of_counts(what, points.counts, report);
    };
    told("training data", model->points);
    for (const HeldOut set : kHeldOut) {
      if (corpora_of(config, set).empty()) continue;
      held_out[set] = points_for(*model, corpora_of(config, set));
      told(concat(name_of(set), " data"), held_out[set]);
    }
  }

  PointBatches batches(DataPosition start) const {
    return PointBatches(model->points, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const PointBatch& batch) {
    return {.tokens = batch.rows, .targets = static_cast<double>(batch.rows)};
  }
  // A point must not see itself: the width would shrink to nothing, because each point knows its
  // own y.
  CrossEntropy loss(const PointBatch& batch, const CrossEntropyOptions& options) const {
    const Points& all = model->points;
    std::vector<double> x, y;
    std::vector<int32_t> own(static_cast<size_t>(batch.rows * all.size()), 0);
    for (const int64_t row : batch.indices) {
      own[y.size() * static_cast<size_t>(all.size()) + static_cast<size_t>(row)] = 1;
      const auto features = all.x.begin() + row * all.features;
      x.insert(x.end(), features, features + all.features);
      y.push_back(all.y[static_cast<size_t>(row)]);
    }
    const Tensor mask = Tensor::from(own, {batch.rows, all.size()}).to(model->store.device());
    return squared_error(
        model->pooling(model->rows(x, all.features), model->keys, model->values, mask),
        model->targets(y), options);
  }
  std::vector<std::string> texts(const PointBatch& batch) const {
    const Points& all = model->points;
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      const int64_t point = batch.indices[static_cast<size_t>(row)];
      std::string text;
      for (int64_t f = 0; f < all.features; ++f) {
        text += concat(all.x[static_cast<size_t>(point * all.features + f)], ", ");
      }
      const double y = all.y[static_cast<size_t>(point)];
      return text + (all.classes.empty() ? concat(y) : all.classes[static_cast<size_t>(y)]);
    });
  }
  std::map<std::string, double> measure(const Points& points, const CrossEntropyOptions&,
                                        const RankGroup&, ValidationDetails*) const {
    return metrics_of(*model, points);
  }
  static int64_t choices() { return 0; }

  std::unique_ptr<RegressionModel> model;
  OfHeldOut<Points> held_out;
};

Evaluation evaluate_points(ModelFiles files, const std::string& device,
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

extern const Task kRegression(
    {.name = "regression",
     .abilities = kPredictsNumbers,
     .metrics = {"mse", "accuracy"},
     .bind_corpus = bind_points,
     .set_defaults = set_defaults},
    {{&kPointExamples, {&kAttentionPoolingModel}, make_supervised<PointKind>, evaluate_points}});

CrossEntropy squared_error(const Var& predicted, const Tensor& truth,
                           const CrossEntropyOptions& options) {
  const Var error = sub(predicted, truth);
  const Var total = sum(mul(error, error));
  CrossEntropy result;
  result.tokens = truth.shape()[0];
  const double count =
      options.normalizer > 0 ? options.normalizer : static_cast<double>(result.tokens);
  result.loss = affine(total, 1 / count, 0);
  // On its device: nobody waits for it.
  const Var squares = reshape(convert(total.value(), DType::kFloat64), {1});
  result.sums =
      concat({squares, Var(Tensor::zeros({2}, DType::kFloat64, truth.device()))}, 0).value();
  return result;
}

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
