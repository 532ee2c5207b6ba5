#include "autograd/running_statistics.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/dispatch_device.h"
#include "core/kernels/batch_norm.h"

namespace tapestry {
namespace {

thread_local DeferredStatistics* deferring = nullptr;

// Stands before the values of x.
struct Head {
  uint64_t running;
  double momentum, scale;
};

void apply_now(const Tensor& x, double momentum, double scale, const Tensor& running) {
  dispatch(running, [&](auto device, auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, Wider<T>>) {
      kernels::update_running(device, momentum, scale, x.data<T>(), running.data<T>(),
                              running.numel());
    }
  });
}

}  // namespace

void update_running(const Tensor& x, double momentum, double scale, const Tensor& running) {
  check(running.dtype() != DType::kBFloat16 && x.dtype() == running.dtype() &&
            x.shape() == running.shape(),
        "update_running", "a statistic of ", x.dtype(), ' ', x.shape(), " cannot update one of ",
        running.dtype(), ' ', running.shape(), '.');
  if (deferring == nullptr) return apply_now(x, momentum, scale, running);
  auto& known = deferring->running_;
  const auto found = std::find_if(known.begin(), known.end(), [&](const Tensor& tensor) {
    return tensor.raw() == running.raw();
  });
  check(found != known.end(), "update_running",
        "expected a running statistic that was given to DeferredStatistics, got another of ",
        running.shape(), '.');
  deferring->notes_.push_back({static_cast<size_t>(found - known.begin()), momentum, scale, x});
}

DeferredStatistics::DeferredStatistics(std::vector<Tensor> running)
    : running_(std::move(running)), outer_(std::exchange(deferring, this)) {}

DeferredStatistics::~DeferredStatistics() { deferring = outer_; }

std::string DeferredStatistics::take() {
  std::string bytes;
  for (const Note& note : notes_) {
    const Head head{note.running, note.momentum, note.scale};
    const Tensor x = note.x.to(Device{});
    bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
    bytes.append(static_cast<const char*>(x.raw()), static_cast<size_t>(x.bytes()));
  }
  notes_.clear();
  return bytes;
}

void DeferredStatistics::apply(const std::vector<std::string>& of_ranks) const {
  for (const std::string& word : of_ranks) {
    std::string_view rest = word;
    while (!rest.empty()) {
      Head head{};
      const bool whole = rest.size() >= sizeof head;
      if (whole) std::memcpy(&head, rest.data(), sizeof head);
      check(whole && head.running < running_.size() &&
                rest.size() - sizeof head >= static_cast<size_t>(running_[head.running].bytes()),
            "update_running", "expected moments of ", running_.size(),
            " statistics from a rank, got ", word.size(), " bytes of something else.");
      const Tensor& running = running_[head.running];
      const Tensor x = Tensor::empty_like(running);
      rest.remove_prefix(sizeof head);
      x.copy_from_host(rest.data());
      rest.remove_prefix(static_cast<size_t>(running.bytes()));
      apply_now(x, head.momentum, head.scale, running);
    }
  }
}

}  // namespace tapestry
