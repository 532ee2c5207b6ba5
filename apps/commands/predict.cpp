// tapestry predict: what a regression says of each number of standard input.
#include <fmt/format.h>

#include "apps/commands/fit_page.h"
#include "apps/commands/line_filter.h"
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
  std::vector<double> asked;  // for the page
  filter.run(arguments.files.batch_size,
             [&](const std::vector<std::string>& lines, int64_t number) {
               const std::vector<double> x = numbers_of(lines, number);
               const std::vector<double> y = model->predict(x);
               auto next = y.begin();
               for (const std::string& line : lines) {
                 filter.out() << (is_blank(line) ? "" : fmt::format("{:.6g}", *next++)) << '\n';
               }
               if (!arguments.attention.empty()) asked.insert(asked.end(), x.begin(), x.end());
             });
  if (!arguments.attention.empty()) write_file(arguments.attention, fit_page(*model, asked));
  filter.finish();
  return 0;
}

}  // namespace tapestry
