#include <algorithm>
#include <cstdio>
#include <iostream>

#include "apps/classification.h"
#include "apps/filter.h"
#include "core/parallel.h"
#include "data/utf8.h"

namespace tapestry {

int run_classify(const ClassifyArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  const auto model = TextClassifier::load(arguments.model, arguments.compute.device, "classify",
                                          {Task::kClassification});
  filter_lines("classify", 256, [&](const std::vector<std::string>& lines, int64_t) {
    std::vector<std::vector<int32_t>> texts;
    for (const std::string& line : lines) {
      texts.push_back(model->tokenizers.source->encode(line));
    }
    const auto probabilities = classify(*model, texts);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (is_blank(lines[i])) {
        std::cout << '\n';
        continue;
      }
      const auto best = std::max_element(probabilities[i].begin(), probabilities[i].end());
      char text[32];
      std::snprintf(text, sizeof text, "%.4f", *best);
      std::cout << model->config.data.labels[static_cast<size_t>(best - probabilities[i].begin())]
                << '\t' << text << '\n';
    }
  });
  return 0;
}

}  // namespace tapestry
