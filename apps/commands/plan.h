// The command line of `tapestry plan`.
#pragma once

#include <string>
#include <vector>

namespace tapestry {

struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
};
int run_plan(const PlanArguments& arguments);

}  // namespace tapestry
