// Results prepared ahead on a background thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace tapestry {

/// Calls `produce` on its own thread, up to `depth` results ahead, and returns the results in
/// order. The first exception of `produce` ends the thread; next() throws it after the earlier
/// results, and again on every later call. `produce` must not use parallel_for: the threads belong
/// to the consumer.
template <class Item>
class Prefetcher {
 public:
  explicit Prefetcher(std::function<Item()> produce, size_t depth = 4)
      : produce_(std::move(produce)), depth_(depth) {
    check(depth > 0, "prefetcher", "expected a queue depth of at least 1, got 0.");
    thread_ = std::thread([this] { run(); });
  }
  /// Waits at most for the item in progress.
  ~Prefetcher() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Blocks until the next item is ready.
  Item next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !items_.empty() || error_; });
    if (items_.empty()) std::rethrow_exception(error_);
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  void run() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || items_.size() < depth_; });
        if (stop_) return;
      }
      try {
        Item item = produce_();
        std::lock_guard lock(mutex_);
        items_.push_back(std::move(item));
      } catch (...) {
        std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      changed_.notify_all();
      if (error_) return;
    }
  }

  std::function<Item()> produce_;
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tapestry
