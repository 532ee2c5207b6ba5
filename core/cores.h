// Which cores a process has, and keeping a thread's kernels off the others.
#pragma once

#include <vector>

namespace tapestry {

/// The cores that the system lets this process run on (its affinity mask, which launchers and
/// containers narrow), by number, ascending. At least one. set_num_threads(0) takes so many.
std::vector<int> allowed_cores();

/// While it lives, parallel_for on this thread runs on this thread only: for a thread beside the
/// one that trains, whose kernels want the others.
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
