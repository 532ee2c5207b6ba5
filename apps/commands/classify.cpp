// tapestry classify: the class of each line, a text or the path of an image.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "apps/commands/filter.h"
#include "apps/config/sections.h"
#include "apps/tasks/classification.h"
#include "core/parallel.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

void print_class(const Config& config, const ClassProbabilities& probabilities) {
  const auto best = std::max_element(probabilities.begin(), probabilities.end());
  std::cout << fmt::format(
      "{}\t{:.4f}\n", config.data.labels[static_cast<size_t>(best - probabilities.begin())], *best);
}

// Prints the class of each line that is not blank, by classify(line, its number from 1).
template <class Classify>
int answer(const Config& config, Classify classify) {
  filter_lines("classify", 256, [&](const std::vector<std::string>& lines, int64_t number) {
    for (const std::string& line : lines) {
      ++number;
      if (is_blank(line)) {
        std::cout << '\n';
      } else {
        print_class(config, classify(line, number));
      }
    }
  });
  return 0;
}

}  // namespace

int run_classify(const ClassifyArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  ModelFiles files = read_model_files(arguments.model);
  const bool images = reads_images(files.config);
  const auto load = [&]<class Model>() {
    return Model::load(std::move(files), arguments.compute.device, "classify", kClassifies);
  };
  if (images) {
    const auto model = load.operator()<ImageModel>();
    return answer(model->config,
                  [&](const std::string& path, int64_t) { return classify(*model, path); });
  }
  const auto model = load.operator()<TextClassifier>();
  return answer(model->config, [&](const std::string& text, int64_t line) {
    return classify(*model, model->tokenizers.source->encode(text), line);
  });
}

}  // namespace tapestry
