// The kinds of `tapestry bench`: training steps (bench.cpp) and answers (bench_decode.cpp).
#pragma once

#include "apps/commands/command.h"
#include "apps/commands/options.h"

namespace tapestry {

/// What both read.
struct BenchArguments : ConfigArguments {
  /// "128x32x32" (sentences, source and target tokens), "12x64" (rows and tokens of a language
  /// model) or empty: the data. With --decode always three numbers, the second one of the prompt.
  std::string shape = {};
  int64_t steps = 10;
  int64_t warmup_steps = 2;
  std::string json = {};  ///< file to write, or empty
};

/// Times answers instead of training, and returns the exit code.
using DecodingBench = std::function<int(const BenchArguments&)>;
/// Adds --decode, which sets `bench`, and the options that need it.
void add_decoding(CLI::App& app, DecodingBench& bench);

}  // namespace tapestry
