#include "nn/decoding/ensemble.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "autograd/ops.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

// Keeps the logarithm finite if every softmax rounds to 0: a forced token has a log-probability all
// the same.
double smallest(DType dtype) {
  return dtype == DType::kFloat64 ? std::numeric_limits<double>::min()
                                  : double{std::numeric_limits<float>::min()};
}

class Ensemble : public NextToken {
 public:
  Ensemble(std::vector<std::unique_ptr<NextToken>> members, std::vector<double> weights)
      : members_(std::move(members)), weights_(std::move(weights)) {}

  void add(const std::vector<NewSentence>& sentences) override {
    for (const auto& member : members_) member->add(sentences);
  }

  Tensor step(const std::vector<int32_t>& tokens) override {
    Var sum;
    for (size_t i = 0; i < members_.size(); ++i) {
      const Tensor logits = members_[i]->step(tokens);
      const Var z = logits.to(sum.defined() ? sum.dtype() : wider(logits.dtype()));
      if (!sum.defined()) {
        sum = affine(softmax(z), weights_[i], smallest(z.dtype()));
        continue;
      }
      check(z.shape() == sum.shape(), "ensemble", "the models must give logits of one shape, got ",
            sum.shape(), " and ", z.shape(), '.');
      sum = sum + weights_[i] * softmax(z);
    }
    return log(sum).value();
  }

  void select(const std::vector<int32_t>& rows) override {
    for (const auto& member : members_) member->select(rows);
  }

 private:
  std::vector<std::unique_ptr<NextToken>> members_;
  std::vector<double> weights_;
};

}  // namespace

std::vector<double> ensemble_weights(std::vector<double> given, size_t members) {
  if (given.empty()) given.assign(members, 1);
  const auto valid = [](double weight) { return weight >= 0 && std::isfinite(weight); };
  const double total = std::accumulate(given.begin(), given.end(), 0.0);
  if (given.size() != members || !std::all_of(given.begin(), given.end(), valid) || !(total > 0) ||
      !std::isfinite(total)) {
    std::string list;
    for (const double weight : given) list += concat(list.empty() ? "" : ", ", weight);
    fail(ErrorKind::kConfig, "[ensemble] expected ", members,
         " weights, one for each model, none below 0 and one above, got ", list, '.');
  }
  for (double& weight : given) weight /= total;
  return given;
}

std::vector<double> mean_log_probabilities(const std::vector<std::vector<double>>& members,
                                           const std::vector<double>& weights) {
  if (members.size() == 1) return members[0];
  std::vector<double> means(members.at(0).size());
  for (size_t k = 0; k < means.size(); ++k) {
    // Relative to the largest, or every exp() may be 0.
    double largest = members[0][k];
    for (const auto& member : members) largest = std::max(largest, member.at(k));
    double sum = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      sum += weights.at(i) * std::exp(members[i][k] - largest);
    }
    means[k] = largest + std::log(sum);
  }
  return means;
}

std::unique_ptr<NextToken> ensemble_of(std::vector<std::unique_ptr<NextToken>> members,
                                       const std::vector<double>& weights) {
  check(!members.empty(), "ensemble", "expected a model, got none.");
  std::vector<double> shares = ensemble_weights(weights, members.size());
  if (members.size() == 1) return std::move(members[0]);
  return std::make_unique<Ensemble>(std::move(members), std::move(shares));
}

}  // namespace tapestry
