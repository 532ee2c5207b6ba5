#include "core/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tapestry {
namespace {

thread_local bool inside_tile = false;

inline void pause() { __builtin_ia32_pause(); }

// Workers spin for a short while after a job, since the next kernel usually follows at once, and
// sleep on a condition variable after that.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  ~ThreadPool() {
    stop_ = true;
    generation_.fetch_add(1);
    {
      std::lock_guard lock(sleep_mutex_);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t tiles, internal::TileFunction function, void* context) {
    std::lock_guard one_job(job_mutex_);
    function_ = function;
    context_ = context;
    tiles_ = tiles;
    next_ = 0;
    error_ = nullptr;
    running_ = static_cast<int>(workers_.size());
    generation_.fetch_add(1);
    if (sleepers_.load() > 0) {
      {
        std::lock_guard lock(sleep_mutex_);
      }
      wake_.notify_all();
    }
    take_tiles();
    while (running_.load(std::memory_order_acquire) > 0) pause();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void work() {
    uint64_t seen = 0;
    while (true) {
      wait_for_job(seen);
      seen = generation_.load();
      if (stop_) return;
      take_tiles();
      running_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  void wait_for_job(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation_.load() != seen) return;
      pause();
    }
    std::unique_lock lock(sleep_mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return generation_.load() != seen; });
    sleepers_.fetch_sub(1);
  }

  void take_tiles() {
    inside_tile = true;
    for (int64_t tile; (tile = next_.fetch_add(1)) < tiles_;) {
      try {
        function_(context_, tile);
      } catch (...) {
        std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
    inside_tile = false;
  }

  static constexpr int kSpins = 2000;

  std::vector<std::thread> workers_;
  std::mutex job_mutex_, sleep_mutex_, error_mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  internal::TileFunction function_ = nullptr;
  void* context_ = nullptr;
  int64_t tiles_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<int> running_{0};
  std::exception_ptr error_;
};

std::unique_ptr<ThreadPool>& pool() {
  static std::unique_ptr<ThreadPool> instance;
  return instance;
}

ThreadPool& started_pool() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!pool()) set_num_threads(0);
  return *pool();
}

}  // namespace

void set_num_threads(int threads) {
  if (threads <= 0) threads = std::max(1u, std::thread::hardware_concurrency());
  if (pool() && pool()->threads() == threads) return;
  pool().reset();
  pool() = std::make_unique<ThreadPool>(threads);
}

int num_threads() { return started_pool().threads(); }

void internal::run_tiles(int64_t tiles, TileFunction function, void* context) {
  if (tiles <= 0) return;
  if (inside_tile || tiles == 1) {
    for (int64_t tile = 0; tile < tiles; ++tile) function(context, tile);
    return;
  }
  started_pool().run(tiles, function, context);
}

}  // namespace tapestry
