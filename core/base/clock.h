// Time, for measurements.
#pragma once

#include <chrono>

namespace tapestry {

/// Seconds of a clock that never jumps; only differences have a meaning.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tapestry
