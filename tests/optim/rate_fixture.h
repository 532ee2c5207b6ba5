// Lines of numbers that a script of tests/fixtures wrote, by name.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace tapestry::testing_optim {

/// "tests/fixtures/schedules.txt", say: `name number number ...` in each line.
inline std::map<std::string, std::vector<double>> read_rates(const std::string& path) {
  std::map<std::string, std::vector<double>> fixture;
  std::ifstream file(project_file(path));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (double value; words >> value;) fixture[name].push_back(value);
  }
  return fixture;
}

}  // namespace tapestry::testing_optim
