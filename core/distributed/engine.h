// The communicator's thread. Only communicator.cpp includes this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "core/distributed/communicator.h"
#include "core/distributed/device_link.h"
#include "core/distributed/heartbeats.h"

namespace tapestry {

/// Its thread owns it, too: a call into MPI that never returns must not keep the program from its
/// end.
class CommunicatorEngine : public std::enable_shared_from_this<CommunicatorEngine> {
 public:
  explicit CommunicatorEngine(const CommunicatorOptions& options);

  /// Starts the thread, which opens the transport, and waits until the other ranks have done so.
  /// Throws what open() throws, and Error after timeout_seconds.
  void start(const std::function<std::unique_ptr<Transport>()>& open);
  /// Comes after all else. Ends the job with code 1 if it is not finished, and then the thread.
  void close();

  int rank() const { return rank_; }
  const std::string& host() const { return host_; }
  const std::string& library() const { return library_; }
  const std::vector<Stage>& stages() const { return stages_; }

  /// Bucket operations may begin. Returns the slice that this rank owns.
  int know_hosts(const std::vector<std::string>& hosts);

  /// Sends buckets on GPUs over `link`. With `one_stage` buckets use no stages from now on. Returns
  /// the slice that this rank owns.
  int connect(std::unique_ptr<DeviceLink> link, bool one_stage);
  DeviceLink* device_link() const { return link_.get(); }

  int64_t enqueue(std::unique_ptr<Operation> operation);
  void wait(int64_t ticket);
  void doing(const char* phase);
  void finish();
  void end_job(int code) noexcept;

 private:
  struct Running {
    int64_t ticket;
    std::unique_ptr<Operation> operation;
    double reported = 0;        // time of the last report to the user
    int64_t number = 0;         // tickets that have begun
    double reached_by_all = 0;  // since when; on GPUs only
  };

  void run(const std::function<std::unique_ptr<Transport>()>& open);
  void work();
  /// Takes startable work from the queue. Returns false if nothing runs and nothing is queued.
  bool take_work();
  void advance();
  int64_t reached() const;
  void end(int code);
  void report_waiting(Running& running, double now);
  void watch_gpu(Running& running, double now);
  void release(int64_t ticket);
  /// Records the thread's failure and wakes everybody who waits for it.
  void give_up(const std::exception& error);

  const CommunicatorOptions options_;
  std::string host_, library_;
  std::vector<Stage> stages_;
  int rank_ = 0, size_ = 1;

  std::unique_ptr<DeviceLink> link_;  // set before any of its operations; outlives them

  // Used by the thread only.
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Heartbeats> heartbeats_;
  std::list<Running> running_;
  int64_t begun_ = 0;

  // Shared, under the mutex.
  std::mutex mutex_;
  std::condition_variable changed_, asked_;
  std::deque<Running> queue_;
  std::unordered_set<int64_t> open_;  // tickets that are not done
  std::vector<std::string> hosts_;    // until the thread has taken them
  Heartbeats::Doing doing_;
  std::exception_ptr failure_;
  int64_t tickets_ = 0;
  int end_code_ = -1;
  bool ready_ = false, leaving_ = false, stop_ = false, stopped_ = false, ended_ = false;

  std::thread thread_;
};

}  // namespace tapestry
