// The command line of `tapestry replay`.
#pragma once

#include <cstdint>
#include <string>

namespace tapestry {

class Ranks;

struct ReplayArguments {
  std::string run;
  int64_t step = 0;   ///< 0: lists the run's records
  int64_t texts = 8;  ///< rows shown of each micro-batch; 0: all
  int threads = 0;    ///< 0: the config's
};
int run_replay(const ReplayArguments& arguments, Ranks& ranks);

}  // namespace tapestry
