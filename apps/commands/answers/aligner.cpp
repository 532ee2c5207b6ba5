#include "apps/commands/answers/aligner.h"

#include "apps/commands/number_bounds.h"
#include "apps/tasks/answers/result_alignments.h"

namespace tapestry {
std::vector<CLI::Option*> add_alignments(CLI::App& app, AlignmentArguments& arguments) {
  auto* file = app.add_option(
      "--alignments", arguments.file,
      "file for the alignment of each translation, from the attention, as in 0-0 1-2; -: behind "
      "each translation, or in its object");
  auto* units =
      app.add_option("--alignment-units", arguments.units,
                     "words (between spaces and tabs of the line as it is given) | tokens (of the "
                     "tokenizers)")
          ->check(CLI::IsMember({"words", "tokens"}))
          ->capture_default_str()
          ->needs(file);
  auto* layer =
      app.add_option(
             "--alignment-layer", arguments.layer,
             "of the decoder, from 1, the mean of its heads; 0: the guided head, else the last "
             "but one")
          ->check(number<int64_t>(at_least(0)))
          ->capture_default_str();
  return {file, units, layer};
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
  return align_results(models_, {.sources = sources,
                                 .places = counts_words() ? &places : nullptr,
                                 .results = results,
                                 .layer = arguments_.layer,
                                 .batch_size = batch_size});
}

}  // namespace tapestry
