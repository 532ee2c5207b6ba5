#include "core/distributed/communicator.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/cpu/cores.h"
#include "core/distributed/engine.h"

namespace tapestry {

class Communicator::Engine : public CommunicatorEngine {
  using CommunicatorEngine::CommunicatorEngine;
};

Communicator::Communicator() = default;

Communicator::Communicator(const std::function<std::unique_ptr<Transport>()>& open,
                           const CommunicatorOptions& options)
    : Communicator() {  // from here on the destructor closes the engine
  timeout_seconds_ = options.timeout_seconds;
  engine_ = std::make_shared<Engine>(options);
  engine_->start(open);
  rank_ = engine_->rank();
  library_ = engine_->library();
  std::string cores;
  for (const int core : allowed_cores()) cores += concat(core, ' ');
  const std::vector<std::string> places = all_gather(engine_->host() + '\n' + cores);
  hosts_.clear();
  for (const std::string& place : places) hosts_.push_back(place.substr(0, place.find('\n')));
  ranks_on_these_cores_ = static_cast<int>(
      std::count(places.begin(), places.end(), places[static_cast<size_t>(rank_)]));
  slice_ = engine_->know_hosts(hosts_);
}

Communicator::~Communicator() {
  if (engine_) engine_->close();
}

std::vector<std::string> Communicator::all_gather(const std::string& mine) {
  if (!engine_) return {mine};
  std::vector<std::string> texts;
  engine_->wait(engine_->enqueue(string_operation(mine, /*from_0_only=*/false, texts)));
  return texts;
}

std::string Communicator::broadcast(const std::string& text) {
  if (!engine_) return text;
  std::vector<std::string> texts;
  engine_->wait(
      engine_->enqueue(string_operation(rank_ == 0 ? text : "", /*from_0_only=*/true, texts)));
  return std::move(texts.front());
}

Communicator::Ticket Communicator::start(Exchange exchange, const Bucket& bucket) {
  if (!engine_) return 0;
  if (bucket.device.is_cpu()) {
    return engine_->enqueue(bucket_operation(exchange, bucket, engine_->stages()));
  }
  check(connects_gpus(), "communicator", "a bucket on ", bucket.device, " before connect_gpus().");
  const Ticket ticket = engine_->enqueue(engine_->device_link()->operation(exchange, bucket));
  on_gpus_.insert(ticket);
  return ticket;
}

void Communicator::wait(Ticket ticket) {
  if (!engine_) return;
  engine_->wait(ticket);
  if (on_gpus_.erase(ticket) > 0) engine_->device_link()->join();
}

void Communicator::connect_gpus(DeviceSums sums) {
  if (!engine_ || connects_gpus()) return;
  const bool one_stage = sums == DeviceSums::kNccl;
  DeviceLinkOptions options{.rank = rank_,
                            .ranks = size(),
                            .id = broadcast(rank_ == 0 ? new_device_link_id() : ""),
                            .stages = engine_->stages(),
                            .sums = sums,
                            .timeout_seconds = timeout_seconds_};
  if (one_stage) options.stages = {stage_of_all(rank_, size())};
  slice_ = engine_->connect(open_device_link(options), one_stage);
}

bool Communicator::connects_gpus() const { return engine_ && engine_->device_link() != nullptr; }

void Communicator::doing(const char* phase) {
  if (engine_) engine_->doing(phase);
}

void Communicator::finish() {
  if (!engine_) return;
  // Waits until every rank is ready to leave.
  all_gather("");
  engine_->finish();
}

void Communicator::end_job(int code) noexcept {
  if (engine_) engine_->end_job(code);
}

}  // namespace tapestry
