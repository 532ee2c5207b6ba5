// The curves of runs in a terminal.
#pragma once

#include <string>
#include <vector>

namespace tapestry {

struct WatchArguments {
  std::vector<std::string> runs;  ///< folders
  double interval = 1;            ///< seconds from one look to the next
  bool once = false;              ///< prints the present state and ends
};
int run_watch(const WatchArguments& arguments);

}  // namespace tapestry
