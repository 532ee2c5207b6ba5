// Shared code of commands that answer line by line, besides reading lines (line_filter.h).
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "data/tokenizer.h"
#include "nn/decoding.h"

namespace tapestry {

/// A text as one line of a filter's output: \\n and \\r for line ends, and \\v, \\f, \\u0085,
/// \\u2028 and \\u2029 for characters that other programs take for line ends.
std::string one_line(const std::string& text);

/// The lines of a file, "-" for standard input. Throws as LineReader (data/text.h).
std::vector<std::string> read_lines(const std::string& path);

/// Lets a search keep all finished hypotheses, from which best_texts() takes those with different
/// texts. A search that waits for n_best of them would take longer, and is not changed.
void widen_for_distinct_texts(SearchOptions& options);
/// The n best hypotheses, which differ in text_of(hypothesis) as far as there are enough: other
/// pieces may be the same text.
std::vector<Hypothesis> best_texts(std::vector<Hypothesis> found, int64_t n,
                                   const std::function<std::string(const Hypothesis&)>& text_of);

/// "tokens", "token_log_probabilities" (one for each of them) and "end_log_probability", null for a
/// text without end.
nlohmann::ordered_json token_details(const Hypothesis& hypothesis, const Tokenizer& tokenizer);

/// The config's options, overridden by the command line. Throws Error(kConfig).
SearchOptions search_options(SearchOptions options, const SearchArguments& arguments);

}  // namespace tapestry
