// For tests that end a training somewhere in its middle.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace tapestry {

inline void sleep_milliseconds(int64_t count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

// Long enough to be killed several times; under the sanitizers fewer updates take as long.
#ifdef __SANITIZE_ADDRESS__
inline constexpr const char* kLongRun = "training.max_steps=150";
#else
inline constexpr const char* kLongRun = "training.max_steps=500";
#endif

}  // namespace tapestry
