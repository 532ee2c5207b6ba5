#include "apps/tasks/evaluation.h"

#include <iostream>

#include "apps/tasks/task.h"

namespace tapestry {

void Evaluation::add(const std::map<std::string, double>& metrics,
                     const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = metrics.find(name);
    if (found == metrics.end()) continue;
    figures.push_back({name, found->second, is_in_percent(name) ? Kind::kPercent : Kind::kNumber});
  }
}

void warn_of_dropped(const FilterCounts& counts) {
  if (const std::string many = counts.unknown_summary(kManyUnknown); !many.empty()) {
    std::cerr << concat("warning: ", many, " are unknown to the vocabulary\n");
  }
  if (counts.total_dropped() > 0 || counts.truncated > 0) {
    std::cerr << "warning: the figures are not those of the whole data: " << counts.summary()
              << '\n';
  }
}

}  // namespace tapestry
