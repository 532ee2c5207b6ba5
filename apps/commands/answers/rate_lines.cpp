#include "apps/commands/answers/rate_lines.h"

#include <fmt/format.h>

#include "apps/tasks/classes/classification.h"
#include "apps/tasks/long_line.h"

namespace tapestry {

int rate_lines(ModelFiles files, const FilterArguments& arguments, LineFilter& filter) {
  const auto model = TextClassifier::load(std::move(files), arguments.compute.device, "predict",
                                          kRatesTexts, arguments.models.format);
  filter.run(arguments.batch_size, [&](const std::vector<std::string>& lines, int64_t number) {
    std::vector<std::vector<int32_t>> texts;
    std::vector<bool> asked;
    for (const std::string& line : lines) {
      std::vector<int32_t> ids =
          encoder_input(model->config, *model->tokenizers.source, line, number + 1);
      asked.push_back(!ids.empty());
      filter.read(ids, *model->tokenizers.source, number++);
      if (!ids.empty()) texts.push_back(std::move(ids));
    }
    const std::vector<double> numbers =
        texts.empty() ? std::vector<double>() : rate_texts(*model, texts);
    size_t next = 0;
    for (const bool is_asked : asked) {
      if (is_asked) filter.out() << fmt::format("{:.6g}", numbers[next++]);
      filter.out() << '\n';
    }
  });
  filter.finish();
  return 0;
}

}  // namespace tapestry
