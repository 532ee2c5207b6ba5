#include "core/distributed/communicator.h"

#include <algorithm>
#include <utility>

#include "core/cores.h"
#include "core/distributed/engine.h"
#include "core/error.h"

namespace tapestry {

class Communicator::Engine : public CommunicatorEngine {
  using CommunicatorEngine::CommunicatorEngine;
};

Communicator::Communicator() = default;

Communicator::Communicator(const std::function<std::unique_ptr<Transport>()>& open,
                           const CommunicatorOptions& options)
    : engine_(std::make_unique<Engine>(open, options)) {
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

Communicator::~Communicator() = default;

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
  return engine_->enqueue(bucket_operation(exchange, bucket, engine_->stages()));
}

void Communicator::wait(Ticket ticket) {
  if (engine_) engine_->wait(ticket);
}

void Communicator::doing(const char* phase) {
  if (engine_) engine_->doing(phase);
}

void Communicator::finish() {
  if (!engine_) return;
  // Nobody leaves while another still has something to say.
  all_gather("");
  engine_->finish();
}

void Communicator::end_job(int code) noexcept {
  if (engine_) engine_->end_job(code);
}

}  // namespace tapestry
