// Shared code of commands that answer line by line, besides reading lines (line_filter.h).
#pragma once

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

/// "tokens", "token_log_probabilities" (one for each of them) and "end_log_probability", null
/// where a text has no end.
nlohmann::ordered_json token_details(const Hypothesis& hypothesis, const Tokenizer& tokenizer);

/// The config's options, overridden by those of the command line. Throws Error(kConfig).
SearchOptions search_options(const SearchOptions& of_config, const SearchArguments& arguments);

}  // namespace tapestry
