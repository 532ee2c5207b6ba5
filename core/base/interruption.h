// Work that can be left in its middle: a validation, for one, when somebody wants to stop.
#pragma once

#include <functional>

namespace tapestry {

/// Thrown when work stops because somebody asked for it. Not an Error: nothing is wrong.
struct Interrupted {};

/// While it lives, stop_if_asked() on this thread throws Interrupted if `asked` returns true.
class Interruptible {
 public:
  explicit Interruptible(std::function<bool()> asked);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

/// Loops that may take longer than two seconds call it in each turn.
void stop_if_asked();

}  // namespace tapestry
