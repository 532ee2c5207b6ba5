#include "apps/commands/answers/filter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "data/text.h"

namespace tapestry {

std::string one_line(const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kEnds[] = {
      {"\n", "\\n"},
      {"\r", "\\r"},
      {"\v", "\\v"},
      {"\f", "\\f"},
      {"\xC2\x85", "\\u0085"},
      {"\xE2\x80\xA8", "\\u2028"},
      {"\xE2\x80\xA9", "\\u2029"}};
  std::string line = text;
  for (const auto& [end, name] : kEnds) {
    for (size_t at = 0; (at = line.find(end, at)) != std::string::npos; at += name.size()) {
      line.replace(at, end.size(), name);
    }
  }
  return line;
}

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path == "-" ? "/dev/stdin" : path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

nlohmann::ordered_json token_details(const Hypothesis& hypothesis, const Tokenizer& tokenizer) {
  using Json = nlohmann::ordered_json;
  Json pieces = Json::array();
  for (const int32_t id : hypothesis.tokens) pieces.push_back(tokenizer.piece(id));
  std::vector<double> each = hypothesis.token_log_probabilities;
  const Json end = each.size() > hypothesis.tokens.size() ? Json(each.back()) : Json();
  each.resize(hypothesis.tokens.size());
  return {{"tokens", std::move(pieces)},
          {"token_log_probabilities", each},
          {"end_log_probability", end}};
}

SearchOptions search_options(const SearchOptions& of_config, const SearchArguments& arguments) {
  SearchOptions options = override_search(of_config, arguments.overrides);
  const auto given = [&](const char* key) {
    return std::ranges::find(arguments.overrides, key, &SearchOverride::key) !=
           arguments.overrides.end();
  };
  // Draws and beams exclude each other: of the two the command line's wins over the config's.
  if (given("do_sample") && options.do_sample && !given("num_beams")) options.num_beams = 1;
  if (given("num_beams") && options.num_beams > 1 && !given("do_sample")) options.do_sample = false;
  options.seed = arguments.seed.value_or(options.seed);
  options.n_best = arguments.n_best;
  if (options.n_best > options.num_beams && !options.do_sample) {
    fail(ErrorKind::kConfig, "[search] expected 1 <= --n-best <= --beam-size, got ", options.n_best,
         " and ", options.num_beams, "; --do-sample draws so many.");
  }
  options.validate();
  return options;
}

}  // namespace tapestry
