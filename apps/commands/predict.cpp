// tapestry predict: what a regression says of each number of standard input.
#include <fmt/format.h>

#include <optional>

#include "apps/commands/fit_page.h"
#include "apps/commands/line_filter.h"
#include "apps/commands/output_file.h"
#include "core/parallel.h"
#include "data/files.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

// The numbers of lines that are not blank.
std::vector<double> numbers_of(const std::vector<std::string>& lines, int64_t number) {
  std::vector<double> numbers;
  for (const std::string& line : lines) {
    ++number;
    double value = 0;
    if (is_blank(line)) continue;
    if (!parse_number(line, value)) {
      fail(ErrorKind::kData, "[predict] line ", number, " must be a number, got '", line, "'.");
    }
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

int run_predict(const PredictArguments& arguments) {
  LineFilter filter("predict", arguments.files);
  set_num_threads(arguments.compute.threads);
  const auto model =
      RegressionModel::load(read_model_files(arguments.model), arguments.compute.device, "predict");
  std::optional<OutputFile> page;
  if (!arguments.attention.empty()) page.emplace(arguments.attention);
  std::vector<double> asked;  // for the page
  filter.run(arguments.files.batch_size,
             [&](const std::vector<std::string>& lines, int64_t number) {
               const std::vector<double> x = numbers_of(lines, number);
               const std::vector<double> y = model->predict(x);
               auto next = y.begin();
               for (const std::string& line : lines) {
                 filter.out() << (is_blank(line) ? "" : fmt::format("{:.6g}", *next++)) << '\n';
               }
               if (page) asked.insert(asked.end(), x.begin(), x.end());
             });
  if (page) {
    page->stream() << fit_page(*model, asked);
    page->finish();
  }
  filter.finish();
  return 0;
}

}  // namespace tapestry
