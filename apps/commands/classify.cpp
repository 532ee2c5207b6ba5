// tapestry classify: the class of each line, a text or the path of an image.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "apps/commands/attention_page.h"
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
  AttentionBook book(arguments.attention);
  const auto answer_all = [&](const auto& model, auto classify_one) {
    const int code = answer(model.config, classify_one);
    book.write();
    return code;
  };
  if (images) {
    const auto model = load.operator()<ImageModel>();
    return answer_all(*model, [&](const std::string& path, int64_t) {
      if (book.wants()) book.add(attention_page(*model, path));
      return classify(*model, path);
    });
  }
  const auto model = load.operator()<TextClassifier>();
  return answer_all(*model, [&](const std::string& text, int64_t line) {
    const std::vector<int32_t> ids = classifier_input(*model, text, line);
    if (book.wants()) {
      book.add(attention_page({&model->model.trunk}, *model->tokenizers.source, ids));
    }
    return classify(*model, ids);
  });
}

}  // namespace tapestry
