// Batches prepared ahead on a background thread.
#pragma once

#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "data/batching.h"

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
    check(depth > 0, "data", "expected a queue depth of at least 1, got 0.");
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

/// The batches of one process of several that share a walk: of each group of `of` batches it makes
/// `count`, from the `first`-th on, and leaves out the others.
struct Share {
  int64_t first = 0;
  int64_t count = 1;
  int64_t of = 1;
};

/// Any walk through batches (TranslationBatches, BlockBatches, ...) on a background thread: the
/// same batches, the same positions.
template <class Batches>
class Loader {
 public:
  using Batch = decltype(std::declval<Batches&>().next());
  struct Item {
    Batch batch;
    DataPosition position;  ///< after this batch, or its group; a checkpoint stores it
  };

  /// Starts at the position of `batches`. The corpus of `batches` must outlive this.
  explicit Loader(Batches batches, size_t depth = 4) : Loader(std::move(batches), Share(), depth) {}
  /// Loads a share of the batches; the walk begins with a group.
  Loader(Batches batches, const Share& share, size_t depth = 4)
      : batches_(std::move(batches)),
        share_(share),
        position_(batches_.position()),
        queue_([this] { return produce(); }, depth) {
    check(share.first >= 0 && share.count >= 1 && share.first + share.count <= share.of, "data",
          "a share must be some of its group, got ", share.count, " from ", share.first, " of ",
          share.of, '.');
  }
  /// The same from the arguments of Batches. Throws errors of the first epoch's plan.
  template <class... Args>
  requires std::constructible_from<Batches, const Args&...>
  explicit Loader(const Args&... args) : Loader(Batches(args...)) {}

  /// Blocks until the next batch is ready.
  Item next() {
    Item item = queue_.next();
    position_ = item.position;
    return item;
  }
  /// After the batch returned last: a loader that starts here continues with the next one.
  DataPosition position() const { return position_; }

 private:
  Item produce() {
    if (made_ == 0) batches_.skip(share_.first);
    Batch batch = batches_.next();
    if (++made_ == share_.count) {
      batches_.skip(share_.of - share_.first - share_.count);
      made_ = 0;
    }
    return {std::move(batch), batches_.position()};
  }

  // Used only by the queue's thread.
  Batches batches_;
  const Share share_;
  int64_t made_ = 0;  // of the group
  DataPosition position_;
  Prefetcher<Item> queue_;
};

using TranslationLoader = Loader<TranslationBatches>;

}  // namespace tapestry
