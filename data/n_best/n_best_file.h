// Lists of the n best translations of each line, in the format of Moses' decoder:
// "0 ||| text ||| F0= -1.25 ||| -0.5", with the number of the line from 0, values by name, a score.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

struct NBestEntry {
  std::string text;
  std::string features;                        ///< all of the third field
  std::optional<double> log_probability = {};  ///< its F0, as translate writes it
  double score = 0;                            ///< the fourth field
  int64_t line = 0;                            ///< of the file, from 1
  std::string rest = {};  ///< further fields: " ||| 0-0 1-1" of alignments, say
};

/// The entries of each of `lines` lines, in their order. Throws Error(kData) with file:line for one
/// of another form or that is not UTF-8, for numbers that fall or that no line has, and for a line
/// without an entry.
std::vector<std::vector<NBestEntry>> read_n_best(const std::string& path, int64_t lines);

/// The first value behind "NAME=" in a third field, as text; none: it has no such name.
std::optional<std::string> named_value(const std::string& features, const std::string& name);
/// The field without this name and its values.
std::string without_value(const std::string& features, const std::string& name);

/// A text as a field: Moses' decoder writes a bar within text in this form.
std::string as_n_best_field(std::string text);

}  // namespace tapestry
