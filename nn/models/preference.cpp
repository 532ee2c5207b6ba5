#include "nn/models/preference.h"

namespace tapestry {
namespace {

int64_t examples_of(const ComparedAnswers& answers) {
  return answers.log_probabilities.value().numel() / 2;
}

// (B, 2)
Var in_pairs(const Var& x) { return reshape(x, {x.value().numel() / 2, 2}); }
Var column(const Var& pairs, int64_t i) { return slice(pairs, 1, i, i + 1); }
// First the better ones, less the worse ones: (B, 1).
Var difference(const Var& pairs) { return column(pairs, 0) - column(pairs, 1); }

// (B, 2) of log-probabilities by token.
Var by_token(const Var& log_probabilities, const std::vector<int64_t>& tokens) {
  std::vector<double> shares;
  for (const int64_t count : tokens) shares.push_back(1 / static_cast<double>(count));
  const Tensor factors = Tensor::from(shares, {std::ssize(shares)}).to(log_probabilities.dtype());
  return in_pairs(log_probabilities * Var(factors.to(log_probabilities.value().device())));
}

// -log sigmoid(x), as the cross-entropy of choosing x and not 0. A tie is not correct.
CrossEntropy choice_loss(const Var& x, double smoothing, double normalizer) {
  const int64_t rows = x.value().numel();
  const Var nothing(Tensor::zeros({rows, 1}, x.dtype(), x.value().device()));
  // A smoothed target distribution has half of the smoothing at each of two classes.
  return cross_entropy(concat({nothing, x}, 1), Tensor::full({rows}, 1, DType::kInt32),
                       {.label_smoothing = 2 * smoothing, .normalizer = normalizer});
}

// log(e^x / (1 - e^x)) of log-probabilities.
Var log_odds(const Var& x) { return x - log(affine(exp(x), -1, 1)); }

Var summed(const Var& x) { return reshape(convert(sum(x), DType::kFloat64), {1}); }

}  // namespace

Var rewards(const ComparedAnswers& answers, const PreferenceOptions& options) {
  Var l = answers.log_probabilities;
  if (options.has_reference()) l = l - Var(answers.reference);
  const bool whole = options.loss == PreferenceLoss::kDpo;
  return options.beta * (whole ? in_pairs(l) : by_token(l, answers.tokens));
}

CrossEntropy preference_loss(const ComparedAnswers& answers, const PreferenceOptions& options,
                             double normalizer) {
  const int64_t examples = examples_of(answers);
  const double all = normalizer > 0 ? normalizer : static_cast<double>(examples);
  const Var each = by_token(answers.log_probabilities, answers.tokens);
  const Var nll = -sum(column(each, 0));
  const Var apart = difference(rewards(answers, options));
  double nll_weight = options.chosen_weight;
  Var loss;
  switch (options.loss) {
    case PreferenceLoss::kDpo:
      loss = choice_loss(apart, options.label_smoothing, all).loss;
      break;
    case PreferenceLoss::kIpo: {
      const Var off = affine(apart, 1 / options.beta, -1 / (2 * options.beta));
      loss = (1 / all) * sum(off * off);
      break;
    }
    case PreferenceLoss::kOrpo:
      loss = options.beta * choice_loss(difference(log_odds(each)), 0, all).loss;
      nll_weight += 1;
      break;
    case PreferenceLoss::kSimpo:
      loss = choice_loss(affine(apart, 1, -options.margin), 0, all).loss;
      break;
  }
  if (nll_weight > 0) loss = loss + (nll_weight / all) * nll;
  CrossEntropy result{.loss = loss, .tokens = examples, .sums = {}};
  const NoTape constants;
  const Var right = Var(choice_loss(Var(apart.value()), 0, all).sums);
  result.sums = concat({affine(summed(Var(loss.value())), all, 0), summed(Var(nll.value())),
                        slice(right, 0, 2, 3)},
                       0)
                    .value();
  return result;
}

}  // namespace tapestry
