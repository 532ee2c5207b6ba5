#include "apps/commands/filter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
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

void widen_for_distinct_texts(SearchOptions& options) {
  if (options.n_best == 1 || options.early_stopping == EarlyStopping::kNever) return;
  options.n_best = std::max(options.n_best, options.num_beams);
}

std::vector<Hypothesis> best_texts(std::vector<Hypothesis> found, int64_t n,
                                   const std::function<std::string(const Hypothesis&)>& text_of) {
  if (std::ssize(found) <= n) return found;
  std::set<std::string> texts;
  std::vector<bool> kept;
  for (const Hypothesis& hypothesis : found) {
    const bool full = std::ssize(texts) == n;
    kept.push_back(!full && texts.insert(text_of(hypothesis)).second);
  }
  int64_t missing = n - std::ssize(texts);
  std::vector<Hypothesis> best;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!kept[i] && missing-- <= 0) continue;
    best.push_back(std::move(found[i]));
  }
  return best;
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

SearchOptions search_options(SearchOptions options, const SearchArguments& arguments) {
  options.num_beams = arguments.beam_size.value_or(options.num_beams);
  options.length_penalty = arguments.length_penalty.value_or(options.length_penalty);
  if (arguments.length_penalty_type) {
    for (const LengthPenalty type : kLengthPenalties) {
      if (*arguments.length_penalty_type == name_of(type)) options.length_penalty_type = type;
    }
  }
  if (arguments.early_stopping) {
    for (const EarlyStopping stopping : kEarlyStoppings) {
      if (*arguments.early_stopping == name_of(stopping)) options.early_stopping = stopping;
    }
  }
  options.do_sample = arguments.do_sample.value_or(options.do_sample);
  // --do-sample and --beam-size override each other's default from the config.
  if (arguments.do_sample.value_or(false) && !arguments.beam_size) options.num_beams = 1;
  if (arguments.beam_size.value_or(1) > 1 && !arguments.do_sample) options.do_sample = false;
  if (arguments.temperature == 0.0) {
    options.do_sample = false;  // the limit of small ones
  } else {
    options.temperature = arguments.temperature.value_or(options.temperature);
  }
  options.top_k = arguments.top_k.value_or(options.top_k);
  options.top_p = arguments.top_p.value_or(options.top_p);
  options.frequency_penalty = arguments.frequency_penalty.value_or(options.frequency_penalty);
  options.presence_penalty = arguments.presence_penalty.value_or(options.presence_penalty);
  options.repetition_penalty = arguments.repetition_penalty.value_or(options.repetition_penalty);
  options.no_repeat_ngram_size =
      arguments.no_repeat_ngram_size.value_or(options.no_repeat_ngram_size);
  options.min_new_tokens = arguments.min_new_tokens.value_or(options.min_new_tokens);
  options.max_new_tokens = arguments.max_new_tokens.value_or(options.max_new_tokens);
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
