#include "nn/decoding/decoding.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace tapestry {

void SearchOptions::validate(const OptionReport& report) const {
  // A value that is not a number fails each of these.
  const auto finite = [&](const char* member, double value) {
    report.expect(std::isfinite(value), member, "must be finite, got ", value, '.');
  };
  const auto positive = [&](const char* member, double value, const char* note = "") {
    report.expect(value > 0 && std::isfinite(value), member, "must be positive", note, ", got ",
                  value, '.');
  };
  const auto not_negative = [&](const char* member, int64_t value) {
    report.expect(value >= 0, member, "must be at least 0, got ", value, '.');
  };
  if (report.expect(num_beams >= 1 && num_beams <= kMostBeams, "num_beams", "must be in [1, ",
                    kMostBeams, "], got ", num_beams, '.')) {
    report.expect(n_best >= 1 && (do_sample || n_best <= num_beams), "n_best",
                  "must be in [1, num_beams], got ", n_best, " and num_beams ", num_beams, '.');
    report.expect(n_best <= kMostBeams, "n_best", "must be in [1, ", kMostBeams, "], got ", n_best,
                  '.');
    report.expect(!do_sample || num_beams == 1, "num_beams", "must be 1 with do_sample, got ",
                  num_beams, '.');
  }
  finite("length_penalty", length_penalty);
  report.expect(max_length_ratio > 0 && max_length_ratio <= kMostLengthRatio, "max_length_ratio",
                "must be in (0, ", kMostLengthRatio, "], got ", max_length_ratio, '.');
  positive("temperature", temperature, " (without do_sample the search is greedy)");
  not_negative("top_k", top_k);
  report.expect(top_p > 0 && top_p <= 1, "top_p", "must be in (0, 1], got ", top_p, '.');
  report.expect(min_p >= 0 && min_p < 1, "min_p", "must be in [0, 1), got ", min_p, '.');
  report.expect(epsilon_cutoff >= 0 && epsilon_cutoff < 1, "epsilon_cutoff",
                "must be in [0, 1), got ", epsilon_cutoff, '.');
  report.expect(mbr_samples >= 0 && mbr_samples <= kMostBeams, "mbr_samples", "must be in [0, ",
                kMostBeams, "], got ", mbr_samples, '.');
  report.expect(shortlist_size >= 1, "shortlist_size", "must be at least 1, got ", shortlist_size,
                '.');
  finite("frequency_penalty", frequency_penalty);
  finite("presence_penalty", presence_penalty);
  positive("repetition_penalty", repetition_penalty);
  not_negative("no_repeat_ngram_size", no_repeat_ngram_size);
  not_negative("max_repeat", max_repeat);
  not_negative("min_new_tokens", min_new_tokens);
  report.expect(max_new_tokens >= 0 && max_new_tokens <= kMostNewTokens, "max_new_tokens",
                "must be in [0, ", kMostNewTokens, "], got ", max_new_tokens, '.');
  report.expect(max_new_tokens == 0 || min_new_tokens <= max_new_tokens, "min_new_tokens",
                "must be at most max_new_tokens, got ", min_new_tokens, " and ", max_new_tokens,
                '.');
}

double normalized_score(double log_probability, int64_t length, const SearchOptions& options) {
  const auto t = static_cast<double>(length);
  switch (options.length_penalty_type) {
    case LengthPenalty::kNone:
      return log_probability;
    case LengthPenalty::kAverage:
      return log_probability / std::pow(t, options.length_penalty);
    case LengthPenalty::kGnmt:
      return log_probability / std::pow((5 + t) / 6, options.length_penalty);
  }
  return log_probability;
}

std::vector<std::vector<Hypothesis>> search(NextToken& model, const SearchTask& task,
                                            const SearchOptions& options) {
  if (options.num_beams > 1) return beam_search(model, task, options);
  std::vector<std::vector<Hypothesis>> results;
  for (Hypothesis& hypothesis : generate(model, task, options)) {
    results.push_back({std::move(hypothesis)});
  }
  return results;
}

int64_t generation_limit(int64_t prompt_tokens, int64_t positions, int64_t longest,
                         const SearchOptions& options) {
  if (prompt_tokens > longest) {
    fail(ErrorKind::kData, "[search] the prompt has ", prompt_tokens,
         " tokens, the model has positions for ", longest, '.');
  }
  if (options.max_new_tokens > 0) return options.max_new_tokens;
  if (prompt_tokens > positions) {
    fail(ErrorKind::kData, "[search] the prompt has ", prompt_tokens, " tokens, more than the ",
         positions, " of the training: max_new_tokens must say how many may follow.");
  }
  return positions - prompt_tokens + 1;
}

}  // namespace tapestry
