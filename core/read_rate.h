// The rates of the host's memory, the yardsticks of work that moves more than it computes.
#pragma once

namespace tapestry {

/// GB/s at which all threads together read 256 MiB, the best of ten at least.
double read_rate();

/// GB/s at which all threads together copy 128 MiB, the best of ten at least: both that are read
/// and that are written.
double copy_rate();

}  // namespace tapestry
