#include "data/corpora/class_names.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace tapestry {

std::vector<std::string> class_names_of(std::vector<std::string> labels, const std::string& where) {
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (labels.size() < 2) {
    fail(ErrorKind::kData, "[data] ", where, " must have two labels or more, got ",
         labels.empty() ? "none." : concat("only '", labels.front(), "'."));
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

}  // namespace tapestry
