// What the door (door.h) counts, for /metrics.
#pragma once

#include <atomic>
#include <cstdint>

namespace tapestry {

struct DoorCounts {
  std::atomic<int64_t> open{0};       ///< connections now
  std::atomic<int64_t> made_room{0};  ///< closed for new ones
  std::atomic<int64_t> timed_out{0};  ///< that sent or read too slowly
  std::atomic<int64_t> refused{0};    ///< requests that cannot be read
  std::atomic<int64_t> cut{0};        ///< by the client before the answer
};

}  // namespace tapestry
