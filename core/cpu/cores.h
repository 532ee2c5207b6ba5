// The cores of a process, and a guard that keeps a thread's kernels off the others.
#pragma once

#include <vector>

namespace tapestry {

/// The numbers of the cores that the system lets this process use (its affinity mask, which
/// launchers and containers narrow), ascending. At least one. set_num_threads(0) starts one thread
/// for each.
std::vector<int> allowed_cores();

/// While it lives, parallel_for on this thread uses this thread only. For threads beside the one
/// that trains, whose kernels need the other cores.
class OnThisThreadOnly {
 public:
  OnThisThreadOnly();
  ~OnThisThreadOnly();
  OnThisThreadOnly(const OnThisThreadOnly&) = delete;
  OnThisThreadOnly& operator=(const OnThisThreadOnly&) = delete;

 private:
  bool before_;
};

}  // namespace tapestry
