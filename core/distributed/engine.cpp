#include "core/distributed/engine.h"

#include <chrono>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

// MPI makes progress only when it is asked. A small exchange takes about 100 us; spinning would
// take a core from the kernels.
constexpr std::chrono::microseconds kBusyPause{50};
// Pause when only heartbeats need an answer.
constexpr std::chrono::milliseconds kIdlePause{20};

std::chrono::duration<double> seconds(double count) { return std::chrono::duration<double>(count); }

}  // namespace

CommunicatorEngine::CommunicatorEngine(const CommunicatorOptions& options)
    : options_(options), doing_{"starting", steady_seconds()} {}

void CommunicatorEngine::start(const std::function<std::unique_ptr<Transport>()>& open) {
  thread_ = std::thread([self = shared_from_this(), open] { self->run(open); });
  std::unique_lock lock(mutex_);
  const bool told = changed_.wait_for(lock, seconds(options_.timeout_seconds),
                                      [&] { return ready_ || failure_ != nullptr; });
  if (!told) {
    fail(ErrorKind::kRuntime, "[communicator] the ranks have not found each other for ",
         options_.timeout_seconds,
         " s: one has not started, or takes itself for alone (distributed.engine: none).");
  }
  if (failure_) std::rethrow_exception(failure_);
}

void CommunicatorEngine::close() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  const bool finished = stopped_ && failure_ == nullptr;
  if (!finished && ready_) {
    lock.unlock();
    end_job(1);
    lock.lock();
  }
  stop_ = true;
  asked_.notify_all();
  const bool stopped =
      changed_.wait_for(lock, seconds(options_.goodbye_seconds), [&] { return stopped_; });
  lock.unlock();
  if (stopped) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

int CommunicatorEngine::know_hosts(const std::vector<std::string>& hosts) {
  stages_ = stages_of(rank_, hosts);
  {
    const std::lock_guard lock(mutex_);
    hosts_ = hosts;
  }
  return owned_slice(stages_);
}

int CommunicatorEngine::connect(std::unique_ptr<DeviceLink> link, bool one_stage) {
  if (one_stage) stages_ = {stage_of_all(rank_, size_)};
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
  return owned_slice(stages_);
}

int64_t CommunicatorEngine::enqueue(std::unique_ptr<Operation> operation) {
  int64_t ticket;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    check(!leaving_, "communicator", "expected no call after finish().");
    ticket = tickets_++;
    open_.insert(ticket);
    queue_.push_back({ticket, std::move(operation)});
  }
  asked_.notify_all();
  return ticket;
}

void CommunicatorEngine::wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !open_.contains(ticket) || (failure_ && stopped_); });
  if (open_.contains(ticket)) std::rethrow_exception(failure_);
}

void CommunicatorEngine::doing(const char* phase) {
  const std::lock_guard lock(mutex_);
  doing_ = {phase, steady_seconds()};
}

void CommunicatorEngine::finish() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  asked_.notify_all();
  changed_.wait(lock, [&] { return stopped_; });
  if (failure_) std::rethrow_exception(failure_);
}

void CommunicatorEngine::end_job(int code) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    if (!stopped_) {
      if (end_code_ < 0) end_code_ = code;
      asked_.notify_all();
      changed_.wait_for(lock, seconds(options_.goodbye_seconds),
                        [&] { return ended_ || stopped_; });
      if (ended_) return;
    }
    ended_ = true;
  }
  // The thread is gone, or hangs in a call: better by this thread than never.
  if (transport_) transport_->end_job(code);
}

// ---- The thread

void CommunicatorEngine::run(const std::function<std::unique_ptr<Transport>()>& open) {
  try {
    transport_ = open();
    {
      const std::lock_guard lock(mutex_);
      rank_ = transport_->rank();
      size_ = transport_->size();
      host_ = transport_->host();
      library_ = transport_->library();
      ready_ = true;
    }
    changed_.notify_all();
    work();
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    give_up(error);
  }
  // The user's threads may still look at the transport in end_job().
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void CommunicatorEngine::work() {
  heartbeats_ = std::make_unique<Heartbeats>(
      *transport_, HeartbeatOptions{options_.heartbeat_seconds, options_.timeout_seconds});
  for (;;) {
    const bool busy = take_work();
    const int64_t reached = this->reached();
    int end_code;
    bool leaving, stop;
    Heartbeats::Doing doing;
    std::vector<std::string> hosts;
    {
      const std::lock_guard lock(mutex_);
      end_code = end_code_;
      leaving = leaving_ && running_.empty() && queue_.empty();
      stop = stop_;
      doing = doing_;
      doing.reached = reached;
      hosts.swap(hosts_);
    }
    if (end_code >= 0) {
      end(end_code);
      fail(ErrorKind::kRuntime, "[communicator] the job ended with code ", end_code, '.');
    }
    if (stop) return;
    if (!hosts.empty()) heartbeats_->know(std::move(hosts));
    if (leaving) heartbeats_->leave();
    // A message that never comes: nobody else will notice.
    if (const std::string silent = heartbeats_->poll(doing); !silent.empty()) {
      fail(ErrorKind::kRuntime, "[communicator] ", silent, '.');
    }
    advance();
    if (leaving && heartbeats_->gone()) {
      if (link_) link_->finish();
      transport_->finish();
      return;
    }
    if (busy || leaving) {
      std::this_thread::sleep_for(kBusyPause);
      continue;
    }
    std::unique_lock lock(mutex_);
    asked_.wait_for(lock, kIdlePause,
                    [&] { return !queue_.empty() || end_code_ >= 0 || leaving_ || stop_; });
  }
}

void CommunicatorEngine::end(int code) {
  DeviceLink* link = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    link = link_.get();
  }
  changed_.notify_all();
  if (link != nullptr) link->cancel();
  transport_->end_job(code);
}

bool CommunicatorEngine::take_work() {
  for (;;) {
    Running next;
    {
      const std::lock_guard lock(mutex_);
      if (running_.size() >= Communicator::kInFlight || queue_.empty()) return !running_.empty();
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next.reported = steady_seconds();
    next.number = begun_;
    // A tag is reused only long after the messages that had it.
    constexpr int64_t kRound = Transport::kLargestTag / Operation::kTags;
    const int tag = static_cast<int>(begun_++ % kRound) * Operation::kTags;
    next.operation->begin(*transport_, tag);
    running_.push_back(std::move(next));
  }
}

void CommunicatorEngine::advance() {
  const double now = steady_seconds();
  for (auto it = running_.begin(); it != running_.end();) {
    const bool ended = it->operation->advance(*transport_);
    if (ended || it->operation->is_on_its_way()) release(it->ticket);
    if (ended) {
      it = running_.erase(it);
      continue;
    }
    report_waiting(*it, now);
    if (link_) watch_gpu(*it, now);
    ++it;
  }
}

// Wakes the thread that waits for this ticket.
void CommunicatorEngine::release(int64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (open_.erase(ticket) == 0) return;
  }
  changed_.notify_all();
}

// Operations that this rank has come to, all that were before them included.
int64_t CommunicatorEngine::reached() const {
  for (const Running& running : running_) {
    if (!running.operation->is_reached()) return running.number;
  }
  return begun_;
}

// Heartbeats do not see the network between GPUs, so an operation that all ranks have reached has a
// time limit.
void CommunicatorEngine::watch_gpu(Running& running, double now) {
  if (!running.operation->awaited().empty() || heartbeats_->reached_by_all() <= running.number)
    return;
  if (running.reached_by_all == 0) running.reached_by_all = now;
  check(now - running.reached_by_all < options_.timeout_seconds, "communicator",
        "all ranks have come to an exchange between GPUs, and it has not ended for ",
        options_.timeout_seconds, " s.");
}

void CommunicatorEngine::report_waiting(Running& running, double now) {
  if (rank_ != 0 || !options_.report) return;
  if (now - running.reported < options_.notice_seconds) return;
  running.reported = now;
  for (const int rank : running.operation->awaited()) {
    options_.report(
        concat("waiting for ", heartbeats_->name_of(rank), ": ", heartbeats_->last_word_of(rank)));
  }
}

void CommunicatorEngine::give_up(const std::exception& error) {
  {
    // Another rank has given the reason, or the constructor rethrows the failure it waits for.
    const std::lock_guard lock(mutex_);
    if (ended_ || !ready_) return;
  }
  // The thread that trains may be long in coming to its next call.
  const auto* const own = dynamic_cast<const Error*>(&error);
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const ErrorKind kind = own != nullptr ? own->kind()
                         : no_memory    ? ErrorKind::kOutOfMemory
                                        : ErrorKind::kRuntime;
  try {
    const char* const what = no_memory ? "out of memory" : error.what();
    if (options_.report) options_.report(concat("rank ", rank_, ", ", host_, ": ", what));
  } catch (const std::bad_alloc&) {  // no memory left for a message
  }
  end(static_cast<int>(kind));
}

}  // namespace tapestry
