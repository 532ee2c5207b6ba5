// The processor's time of a program that measures.
#pragma once

#include <sys/resource.h>

namespace tapestry {

/// Of all threads of this process, in the system too.
inline double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

}  // namespace tapestry
