// The command line of `tapestry plan`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry {

struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  int64_t ranks = 1;  ///< that share the training
};
int run_plan(const PlanArguments& arguments);

}  // namespace tapestry
