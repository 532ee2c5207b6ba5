#include "core/base/progress.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/base/clock.h"

namespace tapestry {
namespace {

std::mutex mutex;
std::vector<const Progress*> going_on;  // in the order in which they began
std::function<void()> when_ended;

}  // namespace

Progress::Progress(std::string what, int64_t total, std::string unit)
    : what_(std::move(what)), unit_(std::move(unit)), total_(total), begun_(steady_seconds()) {
  const std::lock_guard lock(mutex);
  going_on.push_back(this);
}

Progress::~Progress() {
  std::function<void()> ended;
  {
    const std::lock_guard lock(mutex);
    going_on.erase(std::ranges::find(going_on, this));
    ended = when_ended;
  }
  if (ended) ended();
}

std::optional<ProgressNow> ProgressNow::look() {
  const std::lock_guard lock(mutex);
  if (going_on.empty()) return std::nullopt;
  const Progress& first = *going_on.front();
  return ProgressNow{first.what_, first.unit_, first.done_, first.total_,
                     steady_seconds() - first.begun_};
}

void when_progress_ends(std::function<void()> ended) {
  const std::lock_guard lock(mutex);
  when_ended = std::move(ended);
}

}  // namespace tapestry
