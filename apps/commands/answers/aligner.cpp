#include "apps/commands/answers/aligner.h"

#include <numeric>

#include "apps/commands/number_bounds.h"

namespace tapestry {
namespace {

std::vector<int32_t> numbers_of(const std::vector<int32_t>& ids) {
  std::vector<int32_t> numbers(ids.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

void add_alignments(CLI::App& app, AlignmentArguments& arguments) {
  app.add_option("--alignments", arguments.file,
                 "file for the alignment of each translation, from the attention, as in 0-0 1-2; "
                 "-: behind each translation, or in its object");
  app.add_option("--alignment-units", arguments.units,
                 "words (between spaces and tabs of the line as it is given) | tokens (of the "
                 "tokenizers)")
      ->check(CLI::IsMember({"words", "tokens"}))
      ->capture_default_str();
  app.add_option("--alignment-layer", arguments.layer,
                 "of the decoder, from 1, the mean of its heads; 0: the guided head, else the last "
                 "but one")
      ->check(number<int64_t>(at_least(0)))
      ->capture_default_str();
}

Aligner::Aligner(const Translator& models, const AlignmentArguments& arguments)
    : models_(models), arguments_(arguments) {
  if (!wanted()) return;
  source_attention(models.models(), {{}}, {{}}, arguments.layer, 1, models.rows());  // is it there?
  if (!inline_with_text()) file_.emplace(arguments.file);
}

std::vector<std::vector<Alignment>> Aligner::align(
    const std::vector<std::vector<int32_t>>& sources, const std::vector<PlacedText>& places,
    const std::vector<std::vector<Hypothesis>>& results, int64_t batch_size) const {
  std::vector<std::vector<int32_t>> from, to;
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const Hypothesis& hypothesis : results[i]) {
      from.push_back(sources[i]);
      to.push_back(hypothesis.tokens);
    }
  }
  const auto weights =
      source_attention(models_.models(), from, to, arguments_.layer, batch_size, models_.rows());
  std::vector<std::vector<Alignment>> alignments(sources.size());
  size_t next = 0;
  const TokenizerPair& tokenizers = models_.tokenizers();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto of_source =
        counts_words() ? word_numbers(*tokenizers.source, places[i]) : numbers_of(sources[i]);
    for (size_t n = 0; n < results[i].size(); ++n, ++next) {
      const Tokenizer& target = *tokenizers.target;
      const auto of_target = counts_words() ? word_numbers(target, placed_output(target, to[next]))
                                            : numbers_of(to[next]);
      alignments[i].push_back(hard_alignment(weights[next], of_source, of_target));
    }
  }
  return alignments;
}

}  // namespace tapestry
