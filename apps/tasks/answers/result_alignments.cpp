#include "apps/tasks/answers/result_alignments.h"

#include <numeric>

namespace tapestry {
namespace {

std::vector<int32_t> numbers_of(const std::vector<int32_t>& ids) {
  std::vector<int32_t> numbers(ids.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

std::vector<std::vector<Alignment>> align_results(const Translator& models,
                                                  const TranslationsToAlign& translations) {
  const auto& sources = translations.sources;
  const auto& results = translations.results;
  const bool words = translations.places != nullptr;
  std::vector<std::vector<int32_t>> from, to;
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const Hypothesis& hypothesis : results[i]) {
      from.push_back(sources[i]);
      to.push_back(hypothesis.tokens);
    }
  }
  const auto weights = source_attention(models.models(), from, to, translations.layer,
                                        translations.batch_size, models.rows());
  std::vector<std::vector<Alignment>> alignments(sources.size());
  size_t next = 0;
  const TokenizerPair& tokenizers = models.tokenizers();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto of_source = words ? word_numbers(*tokenizers.source, (*translations.places)[i])
                                 : numbers_of(sources[i]);
    for (size_t n = 0; n < results[i].size(); ++n, ++next) {
      const Tokenizer& target = *tokenizers.target;
      const auto of_target =
          words ? word_numbers(target, placed_output(target, to[next])) : numbers_of(to[next]);
      alignments[i].push_back(hard_alignment(weights[next], of_source, of_target));
    }
  }
  return alignments;
}

}  // namespace tapestry
