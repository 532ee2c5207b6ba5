// tapestry predict: a regression's prediction for each number, or list of numbers, of its input.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/answers/rate_lines.h"
#include "apps/commands/command.h"
#include "apps/commands/output_file.h"
#include "apps/commands/pages/fit_page.h"
#include "core/cpu/parallel.h"
#include "data/files/files.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// The `features` numbers of a line, between commas, tabs or spaces.
std::vector<double> numbers_of(const std::string& line, int64_t number, int64_t features) {
  std::vector<double> numbers;
  bool whole = true;
  const char* const between = features == 1 ? "" : ", \t";
  for (size_t at = 0, end = 0; at < line.size(); at = end + 1) {
    end = std::min(line.size(), line.find_first_of(between, at));
    if (end == at) continue;
    double value = 0;
    whole = whole && parse_number(line.substr(at, end - at), value);
    numbers.push_back(value);
  }
  if (!whole || std::ssize(numbers) != features) {
    fail(ErrorKind::kData, "[predict] line ", number, " must be ",
         features == 1 ? "a number" : concat(features, " numbers"), ", got '", line, "'.");
  }
  return numbers;
}

// f(x), or the class with the largest share of the neighbours and, behind a tab, that share.
std::string text_of(const RegressionModel& model, const double* predicted) {
  if (model.points.classes.empty()) return fmt::format("{:.6g}", *predicted);
  const double* const largest = std::max_element(predicted, predicted + model.outputs());
  return fmt::format("{}\t{:.4f}",
                     one_line(model.points.classes[static_cast<size_t>(largest - predicted)]),
                     *largest);
}

int run_predict(const FilterArguments& arguments) {
  LineFilter filter("predict", arguments);
  set_num_threads(arguments.compute.threads);
  ModelFiles files = read_model_files(arguments.model());
  if (files.config.task->can(kRatesTexts)) {
    if (!arguments.attention.empty()) {
      fail(ErrorKind::kConfig, "[predict] --attention draws points, ", arguments.model(),
           " rates texts.");
    }
    return rate_lines(std::move(files), arguments, filter);
  }
  if (arguments.pairs) {
    fail(ErrorKind::kConfig, "[predict] --pairs is for texts, ", arguments.model(),
         " predicts of points.");
  }
  const auto model = RegressionModel::load(std::move(files), arguments.compute.device, "predict");
  std::optional<OutputFile> page;
  if (!arguments.attention.empty()) {
    const Points& points = model->points;
    if (points.features > 1 || !points.classes.empty()) {
      fail(ErrorKind::kConfig, "[predict] --attention draws y over one x, the model has ",
           points.features, points.features == 1 ? " x and " : " columns of x and ",
           points.classes.empty() ? "a number" : "a class", " of each point.");
    }
    page.emplace(arguments.attention);
  }
  std::vector<double> asked;  // for the page
  using Lines = std::vector<std::string>;
  const std::function<void(const Lines&, int64_t)> answer = [&](const Lines& lines, int64_t first) {
    std::vector<double> x;
    std::vector<bool> asks;
    for (const std::string& line : lines) {
      const int64_t number = first + std::ssize(asks);
      const auto read = [&] {
        const auto one = numbers_of(line, number + 1, model->points.features);
        x.insert(x.end(), one.begin(), one.end());
      };
      try {
        asks.push_back(!is_blank(line) && filter.takes_record(number, read));
      } catch (const Error&) {
        if (!asks.empty()) answer({lines.begin(), lines.begin() + std::ssize(asks)}, first);
        throw;  // the lines before it are good
      }
    }
    const std::vector<double> y = model->predict(x);
    const double* next = y.data();
    for (const bool is_asked : asks) {
      if (is_asked) {
        filter.out() << text_of(*model, next);
        next += model->outputs();
      }
      filter.out() << '\n';
    }
    if (page) asked.insert(asked.end(), x.begin(), x.end());
  };
  filter.run(arguments.batch_size, answer);
  if (page) {
    page->stream() << fit_page(*model, asked);
    page->finish();
  }
  filter.finish();
  return 0;
}

void add_predict(CLI::App& app, FilterArguments& arguments) {
  add_model(app, arguments);
  add_input(app, arguments);
  add_output(app, arguments, "numbers at a time");
  add_pairs(app, arguments);
  app.add_option("--attention", arguments.attention,
                 "also write a page (HTML) with the curve and the weights of the points");
}

}  // namespace

extern const Command kPredict(
    "predict",
    "y, or the class and its share, for each line of standard input by a regression: an x, or the "
    "numbers of several; or the number of a text",
    add_predict, run_predict);

}  // namespace tapestry
