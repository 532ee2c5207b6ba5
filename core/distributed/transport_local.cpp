#include "core/distributed/transport_local.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/philox.h"

namespace tapestry {
namespace {

struct Message {
  const void* data;
  int64_t bytes;
  double arrives;  // steady_seconds()
  bool delivered = false;
};

// The messages between two ranks with one tag, numbered in their order.
struct Lane {
  uint64_t sent = 0, received = 0;
  std::map<uint64_t, std::shared_ptr<Message>> under_way;
};

struct LocalRequest final : Transport::Request {
  std::shared_ptr<Message> message;  // of a send
  Lane* lane = nullptr;              // of a receive
  uint64_t number = 0;
  void* data = nullptr;
  int64_t bytes = 0;
  int from = 0;
};

}  // namespace

struct LocalJob::State {
  LocalJobOptions options;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Lane> lanes;  // by sender, receiver and tag
  std::vector<bool> cut_off;
  uint64_t messages = 0;
  int code = -1;
};

class LocalJob::Rank final : public Transport {
 public:
  Rank(std::shared_ptr<State> state, int rank) : state_(std::move(state)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(state_->options.hosts.size()); }
  std::string host() const override { return state_->options.hosts[static_cast<size_t>(rank_)]; }
  std::string library() const override { return "threads of one process"; }

  RequestPtr send(int to, int tag, const void* data, int64_t bytes) override {
    check_arguments(to, tag, bytes);
    const std::lock_guard lock(state_->mutex);
    const double random = to_uniform(philox_bits({state_->options.seed, 0, 0}, state_->messages++));
    auto message = std::make_shared<Message>(
        Message{data, bytes, steady_seconds() + random * state_->options.longest_delay_seconds});
    Lane& lane = state_->lanes[{rank_, to, tag}];
    lane.under_way[lane.sent++] = message;
    auto request = std::make_unique<LocalRequest>();
    request->message = std::move(message);
    return request;
  }

  RequestPtr receive(int from, int tag, void* data, int64_t bytes) override {
    check_arguments(from, tag, bytes);
    const std::lock_guard lock(state_->mutex);
    Lane& lane = state_->lanes[{from, rank_, tag}];
    auto request = std::make_unique<LocalRequest>();
    request->lane = &lane;
    request->number = lane.received++;
    request->data = data;
    request->bytes = bytes;
    request->from = from;
    return request;
  }

  bool done(Request& any) override {
    auto& request = static_cast<LocalRequest&>(any);
    const std::lock_guard lock(state_->mutex);
    check(state_->code < 0, "transport", "the job ended with code ", state_->code, '.');
    if (request.lane == nullptr) return request.message->delivered;
    const auto found = request.lane->under_way.find(request.number);
    if (found == request.lane->under_way.end()) return false;
    Message& message = *found->second;
    if (message.arrives > steady_seconds() || state_->cut_off[static_cast<size_t>(request.from)]) {
      return false;
    }
    check(message.bytes == request.bytes, "transport", "expected ", request.bytes,
          " bytes from rank ", request.from, ", got ", message.bytes, '.');
    if (message.bytes > 0) {
      std::memcpy(request.data, message.data, static_cast<size_t>(message.bytes));
    }
    message.delivered = true;
    request.lane->under_way.erase(found);
    return true;
  }

  void finish() override {}
  void end_job(int code) noexcept override {
    const std::lock_guard lock(state_->mutex);
    if (state_->code < 0) state_->code = code;
  }

 private:
  void check_arguments(int other, int tag, int64_t bytes) const {
    check(other >= 0 && other < size() && other != rank_ && tag >= 0 && tag <= kLargestTag &&
              bytes >= 0 && bytes <= kLargestMessage,
          "transport", "no such message: rank ", rank_, " and ", other, " of ", size(), ", tag ",
          tag, ", ", bytes, " bytes.");
  }

  std::shared_ptr<State> state_;
  int rank_;
};

LocalJob::LocalJob(const LocalJobOptions& options) : state_(std::make_shared<State>()) {
  state_->options = options;
  state_->cut_off.resize(options.hosts.size());
}

LocalJob::~LocalJob() = default;

std::unique_ptr<Transport> LocalJob::open(int rank) { return std::make_unique<Rank>(state_, rank); }

void LocalJob::cut_off(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->cut_off[static_cast<size_t>(rank)] = true;
}

int LocalJob::code() const {
  const std::lock_guard lock(state_->mutex);
  return state_->code;
}

}  // namespace tapestry
