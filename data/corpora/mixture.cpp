#include "data/corpora/mixture.h"

#include <algorithm>
#include <cmath>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "data/corpora/permutation.h"

namespace tapestry {

bool MixOptions::mixes() const {
  return temperature > 0 ||
         std::any_of(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
}

void MixOptions::validate(const OptionReport& report) const {
  report.expect(temperature >= 0 && temperature <= kLargestTemperature, "temperature",
                "must be in [0, 1e6], got ", temperature, '.');
  for (const double weight : weights) {
    report.expect(weight >= 0 && weight <= kLargestWeight, "weight", "must be in [0, 1e6], got ",
                  weight, '.');
  }
  if (!mixes()) return;
  const bool any = MixOptions{weights}.mixes();
  report.expect(!any || temperature == 0, "temperature",
                "decides the shares of corpora without weight, got both.");
  report.expect(!any || std::find(weights.begin(), weights.end(), 0.0) == weights.end(), "weight",
                "must be above 0 for each corpus of the list, or given for none.");
}

Mixture::Mixture(int64_t rows, std::vector<int64_t> parts, const MixOptions& options, uint64_t seed)
    : rows_(rows), seed_(seed) {
  options.validate();
  if (!options.mixes() || parts.size() < 2) return;
  parts_ = std::move(parts);
  if (options.temperature > 0) {
    const auto most = static_cast<double>(*std::max_element(parts_.begin(), parts_.end()));
    for (const int64_t part : parts_) {
      shares_.push_back(std::pow(static_cast<double>(part) / most, 1 / options.temperature));
    }
  } else {
    shares_ = options.weights;
  }
  if (shares_.size() != parts_.size()) {
    fail(ErrorKind::kConfig, "[data] expected a weight for each of ", parts_.size(),
         " corpora, got ", shares_.size(), '.');
  }
  double all = 0;
  for (const double share : shares_) all += share;
  for (double& share : shares_) share /= all;
}

int64_t Mixture::given_after(size_t part, int64_t epochs) const {
  return std::llround(shares_[part] * static_cast<double>(rows_) * static_cast<double>(epochs));
}

EpochRows Mixture::epoch(int64_t number) const {
  EpochRows rows(rows_);
  if (shares_.empty()) return rows;
  rows.seed_ = seed_;
  int64_t end = 0, first = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const int64_t given = given_after(i, number);
    const int64_t begin = end;
    end += given_after(i, number + 1) - given;
    rows.parts_.push_back({end, given - begin, first, parts_[i], static_cast<uint32_t>(i)});
    first += parts_[i];
  }
  rows.size_ = end;
  return rows;
}

const EpochRows::Part& EpochRows::part_of(int64_t i) const {
  return *std::find_if(parts_.begin(), parts_.end(),
                       [i](const Part& candidate) { return i < candidate.end; });
}

EpochRows::Place EpochRows::place(int64_t i) const {
  const Part& part = part_of(i);
  const int64_t place = i + part.shift;
  // The number of the pass takes the place of the epoch in other draws.
  PhiloxKey key = draw_key(seed_, place / part.rows, "data.mixture");
  key.stream += part.number;
  return {part.number, place / part.rows, Permutation(part.rows, key)(place % part.rows)};
}

int64_t EpochRows::operator[](int64_t i) const {
  return parts_.empty() ? i : part_of(i).first + place(i).row;
}

}  // namespace tapestry
