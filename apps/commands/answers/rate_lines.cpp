#include "apps/commands/answers/rate_lines.h"

#include <fmt/format.h>

#include "apps/commands/answers/line_rows.h"
#include "apps/tasks/classes/classification.h"

namespace tapestry {

int rate_lines(ModelFiles files, const FilterArguments& arguments, LineFilter& filter) {
  const auto model = TextClassifier::load(std::move(files), arguments.compute.device, "predict",
                                          kRatesTexts, arguments.models.format);
  answer_rows(filter, arguments.batch_size, model->config, *model->tokenizers.source,
              arguments.pairs || reads_text_pairs(model->config), [&](const LineRows& rows) {
                std::vector<std::string> answers(rows.lines.size());
                const std::vector<double> numbers =
                    rows.texts.empty() ? std::vector<double>() : rate_texts(*model, rows.texts);
                for (size_t i = 0; i < numbers.size(); ++i) {
                  answers[rows.places[i]] = fmt::format("{:.6g}", numbers[i]);
                }
                for (const std::string& answer : answers) filter.out() << answer << '\n';
              });
  filter.finish();
  return 0;
}

}  // namespace tapestry
