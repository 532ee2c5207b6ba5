// The kinds of `tapestry bench`: training steps (training_steps.h), answers (decoding.cpp) and
// operations (operations_bench.cpp).
#pragma once

#include <optional>

#include "apps/commands/command.h"
#include "apps/commands/options.h"
#include "apps/commands/output_file.h"

namespace tapestry {

/// What all read.
struct BenchArguments : ConfigArguments {
  /// "128x32x32" (sentences, source and target tokens), "12x64" (rows and tokens of a language
  /// model) or empty: the data. With --decode always three numbers, the second one of the prompt.
  std::string shape = {};
  int64_t steps = 10;
  int64_t warmup_steps = 2;
  std::string json = {};  ///< file to write, or empty
  int threads = 0;        ///< 0: the config's
};

/// Rows, and the tokens of a source and a target row. A language model has only targets.
struct BatchShape {
  int64_t rows = 0, source = 0, target = 0;
  int64_t tokens() const { return rows * (source + target); }
};
/// --shape: SENTENCESxSOURCExTARGET, or ROWSxTOKENS. Throws Error(kConfig) for any other text.
BatchShape parse_shape(const std::string& text, bool both_sides);

/// --json: opened before the work, so that a wrong name is told at once; no file for "".
class FiguresFile {
 public:
  explicit FiguresFile(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  template <class Json>
  void write(const Json& figures) {
    if (!file_) return;
    file_->stream() << figures.dump(2) << '\n';
    file_->finish();
  }

 private:
  std::optional<OutputFile> file_;
};

/// Of one value at least.
double median(std::vector<double> values);

/// Times something else than training steps, and returns the exit code.
using OtherBench = std::function<int(const BenchArguments&, const Program&)>;
/// Adds --decode, which sets `bench`, and the options that need it.
void add_decoding(CLI::App& app, OtherBench& bench);
/// The same with --ops.
void add_operations(CLI::App& app, OtherBench& bench);

}  // namespace tapestry
