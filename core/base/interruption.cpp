#include "core/base/interruption.h"

#include <utility>

namespace tapestry {
namespace {

thread_local std::function<bool()> is_asked;

}  // namespace

Interruptible::Interruptible(std::function<bool()> asked) { is_asked = std::move(asked); }
Interruptible::~Interruptible() { is_asked = nullptr; }

void stop_if_asked() {
  if (is_asked && is_asked()) throw Interrupted();
}

}  // namespace tapestry
