#include "apps/tasks/evaluation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tasks/task.h"

namespace tapestry {

void Evaluation::add(const std::map<std::string, double>& metrics,
                     const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = metrics.find(name);
    if (found == metrics.end()) continue;
    figures.push_back({name, found->second, is_in_percent(name) ? Kind::kPercent : Kind::kNumber});
  }
}

namespace {

// Two groups or more are needed, and a model that has not diverged.
template <class F>
std::optional<ConfidenceInterval> interval_of(const SampledRatio& ratio, F scaled) {
  if (!std::isfinite(ratio.value()) || !std::isfinite(ratio.margin())) return std::nullopt;
  const ConfidenceInterval interval = ratio.interval();
  return ConfidenceInterval{scaled(interval.low), scaled(interval.high)};
}

double clamped_percent(double share) { return std::clamp(100 * share, 0.0, 100.0); }

}  // namespace

void Evaluation::add_percent(const std::string& name, const SampledRatio& share) {
  figures.push_back({name, share.percent(), Kind::kPercent, interval_of(share, clamped_percent)});
}

void Evaluation::add(const std::string& name, const SampledRatio& value) {
  figures.push_back({name, value.value(), Kind::kNumber, interval_of(value, std::identity())});
}

void Evaluation::add_losses(const LossSums& losses, const std::string& perplexity) {
  add("nll", losses.nll());
  const auto exponential = [](double x) { return std::exp(x); };
  figures.push_back({perplexity, std::exp(losses.nll().value()), Kind::kNumber,
                     interval_of(losses.nll(), exponential)});
  add_percent("accuracy", losses.correct());
}

void Evaluation::add_answers(const AnswerScores& scores) {
  add_percent("exact_match", scores.exact);
  add_percent("f1", scores.f1);
}

void warn_of_dropped(const FilterCounts& counts) {
  if (const std::string many = counts.unknown_summary(kManyUnknown); !many.empty()) {
    std::cerr << concat("warning: ", many, " are unknown to the vocabulary\n");
  }
  if (counts.total_dropped() > 0 || counts.truncated > 0) {
    std::cerr << "warning: the figures are not those of the whole data: " << counts.summary()
              << '\n';
  }
}

std::string to_json(const Evaluation& result) {
  using Json = nlohmann::ordered_json;
  Json out;
  Json intervals;
  for (const auto& [name, value, kind, interval] : result.figures) {
    out[name] = kind == Evaluation::Kind::kCount ? Json(static_cast<int64_t>(value)) : Json(value);
    if (interval) intervals[name] = {interval->low, interval->high};
  }
  if (!intervals.empty()) out["intervals"] = intervals;
  if (!result.classes) return out.dump();
  out["classes"] = Json::array();
  for (const ClassScores::Class& one : result.classes->classes) {
    out["classes"].push_back({{"name", one.name},
                              {"precision", one.precision},
                              {"recall", one.recall},
                              {"f1", one.f1},
                              {"examples", one.examples}});
  }
  if (!result.classes->confusion.empty()) out["confusion"] = result.classes->confusion;
  return out.dump();
}

}  // namespace tapestry
