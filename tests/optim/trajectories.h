// The fixtures of optimizers: numbers of tensors after each update of each case.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace tapestry::testing_optim {

/// [case][step][tensor]
using Trajectories =
    std::map<std::string, std::map<int, std::map<std::string, std::vector<double>>>>;

/// Lines "case step tensor number ..." of a file of tests/fixtures.
inline Trajectories read_trajectories(const std::string& name) {
  Trajectories result;
  std::ifstream file(project_file("tests/fixtures/" + name));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string of_case, tensor;
    int step = 0;
    words >> of_case >> step >> tensor;
    for (double value; words >> value;) result[of_case][step][tensor].push_back(value);
  }
  return result;
}

}  // namespace tapestry::testing_optim
