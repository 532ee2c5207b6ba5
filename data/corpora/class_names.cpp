#include "data/corpora/class_names.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/utf8.h"

namespace tapestry {

std::vector<std::string> class_names_of(std::vector<std::string> labels, const std::string& where,
                                        const FilterCounts& counts) {
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (labels.size() < 2) {
    fail(ErrorKind::kData, "[data] ", where, " must have two labels or more, got ",
         labels.empty() ? "none" : concat("only '", labels.front(), '\''),
         counts.total_dropped() > 0 ? concat("; ", counts.summary(), '.') : ".");
  }
  return labels;
}

int32_t class_number(const std::vector<std::string>& names, const std::string& label,
                     const std::string& place) {
  const auto found = std::find(names.begin(), names.end(), label);
  if (found != names.end()) return static_cast<int32_t>(found - names.begin());
  fail(ErrorKind::kData, "[data] ", place, " must have one of the labels ", join(names, ", "),
       ", got '", label, "'.");
}

std::optional<std::vector<std::string>> names_in_label(std::string_view label) {
  std::vector<std::string> names;
  if (strip(label) == "-") return names;
  for (size_t begin = 0; begin <= label.size();) {
    const size_t end = std::min(label.find(',', begin), label.size());
    const std::string_view name = strip(label.substr(begin, end - begin));
    if (name.empty() || name == "-") return std::nullopt;
    names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

}  // namespace tapestry
