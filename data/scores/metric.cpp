#include "data/scores/metric.h"

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "data/scores/ngrams.h"

namespace tapestry {

std::string Translations::reference_count() const {
  for (const auto& one : references) {
    if (one.size() != references.front().size()) return "var";
  }
  return std::to_string(references.front().size());
}

void Translations::check(const std::string& who) const {
  for (const auto& system : systems) {
    if (system.size() != sentences()) {
      fail(ErrorKind::kData, '[', who, "] expected as many hypotheses as references, got ",
           system.size(), " and ", sentences(), '.');
    }
  }
  if (sentences() == 0) fail(ErrorKind::kData, '[', who, "] expected lines to compare, got none.");
  for (size_t i = 0; i < sentences(); ++i) {
    if (references[i].empty()) {
      fail(ErrorKind::kData, '[', who, "] expected a reference for every sentence, got none for ",
           "number ", i + 1, '.');
    }
  }
}

Translations one_system(const std::string& who, std::vector<std::string> hypotheses,
                        const std::vector<std::string>& references) {
  Translations translations;
  translations.systems.push_back(std::move(hypotheses));
  for (const std::string& reference : references) translations.references.push_back({reference});
  translations.check(who);
  return translations;
}

std::string Metric::detail(const double*) const { return ""; }
std::vector<Metric::Figure> Metric::figures(const double*) const { return {}; }

std::string full_signature(const Metric& metric, const std::string& references,
                           const std::string& draws) {
  return concat("nrefs:", references, '|', draws, metric.signature(),
                "|version:", scores::version());
}

SentenceStatistics::SentenceStatistics(const Metric& metric, const Translations& translations)
    : systems_(translations.systems.size()),
      sentences_(translations.sentences()),
      width_(metric.width()) {
  translations.check(metric.name());
  values_.resize(systems_ * sentences_ * width_);
  constexpr int64_t kSentencesOfATile = 8;
  parallel_ranges(static_cast<int64_t>(sentences_), kSentencesOfATile,
                  [&](int64_t begin, int64_t end) {
                    std::vector<std::string_view> hypotheses(systems_);
                    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                      for (size_t s = 0; s < systems_; ++s)
                        hypotheses[s] = translations.systems[s][i];
                      metric.measure(hypotheses, translations.references[i],
                                     values_.data() + i * systems_ * width_);
                    }
                  });
}

std::vector<double> SentenceStatistics::sums(size_t system) const {
  std::vector<double> sums(width_, 0);
  for (size_t i = 0; i < sentences_; ++i) {
    const double* const row = of(system, i);
    for (size_t k = 0; k < width_; ++k) sums[k] += row[k];
  }
  return sums;
}

}  // namespace tapestry
