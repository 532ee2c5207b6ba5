// For tests that need a GPU (or its emulation).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/cuda/runtime.h"

/// Skips a test if there is no GPU, or fails it if TAPESTRY_REQUIRE_GPU is set, as tests/gpu.sh
/// does. A macro, because it returns from the calling function.
#define NEED_GPU()                                                                     \
  do {                                                                                 \
    const std::string why = tapestry::cuda::why_no_device();                           \
    if (why.empty()) break;                                                            \
    if (std::getenv("TAPESTRY_REQUIRE_GPU")) FAIL() << "no GPU answers here: " << why; \
    GTEST_SKIP() << "no GPU answers here: " << why;                                    \
  } while (false)
