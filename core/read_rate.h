// The read rate of the host's memory, the yardstick of work that reads more than it computes.
#pragma once

namespace tapestry {

/// GB/s at which all threads together read 256 MiB, the best of ten.
double read_rate();

}  // namespace tapestry
