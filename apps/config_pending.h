// Stand-ins for option structs of optim/ until those land; same names and members.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry::pending {

struct OptimizerOptions {
  std::string name = "adam";
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
};

struct ScheduleOptions {
  double learning_rate = 5e-4;
  std::string type = "constant";
  int64_t warmup_steps = 0;
  double min_learning_rate = 0;
};

}  // namespace tapestry::pending
