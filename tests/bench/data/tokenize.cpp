// The ids of the lines of the standard input, by a tokenizer.json:
//   tokenize TOKENIZER_JSON [--decode] [ROUNDS]
// writes a line of ids for each, or with --decode the text of these ids as a JSON string; and to
// the standard error the processor's seconds of the fastest of ROUNDS encodings of all lines on one
// thread.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/bench/data/processor_seconds.h"

namespace tapestry {
namespace {

int run(const std::vector<std::string>& arguments) {
  const std::string bytes = read_huggingface(arguments.at(0));
  const auto tokenizer = load_tokenizer(bytes, arguments[0]);
  const bool decodes = arguments.size() > 1 && arguments[1] == "--decode";
  const int rounds = arguments.size() > 1 && !decodes ? std::stoi(arguments[1]) : 1;
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  std::vector<std::vector<int32_t>> ids(lines.size());
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    // Each begins with a tokenizer that has seen nothing.
    const auto fresh = load_tokenizer(bytes, arguments[0]);
    const double start = processor_seconds();
    for (size_t i = 0; i < lines.size(); ++i) ids[i] = fresh->encode(lines[i]);
    best = std::min(best, processor_seconds() - start);
  }
  std::fprintf(stderr, "%.4f\n", best);
  for (const std::vector<int32_t>& row : ids) {
    if (decodes) {
      std::cout << nlohmann::json(tokenizer->decode(row)).dump();
    } else {
      for (size_t i = 0; i < row.size(); ++i) std::cout << (i == 0 ? "" : " ") << row[i];
    }
    std::cout << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace tapestry

int main(int argc, char** argv) { return tapestry::run({argv + 1, argv + argc}); }
