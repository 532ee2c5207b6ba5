#include "apps/commands/serve/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/serve/http_error.h"
#include "apps/tasks/task.h"
#include "core/base/byte_count.h"
#include "core/base/printable.h"
#include "core/base/text.h"

namespace tapestry {

void ServeMetrics::count(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  seconds_[path] += seconds;
}

std::string ServeMetrics::text(int64_t texts_now, const std::string& more) const {
  const std::lock_guard lock(mutex_);
  std::string text =
      "# HELP tapestry_requests_total Requests that were answered.\n"
      "# TYPE tapestry_requests_total counter\n";
  for (const auto& [key, count] : requests_) {
    text += fmt::format("tapestry_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                        key.second, count);
  }
  text +=
      "# HELP tapestry_request_seconds_total Time of these requests.\n"
      "# TYPE tapestry_request_seconds_total counter\n";
  for (const auto& [path, seconds] : seconds_) {
    text += fmt::format("tapestry_request_seconds_total{{path=\"{}\"}} {:.6f}\n", path, seconds);
  }
  text += fmt::format(
      "# HELP tapestry_texts Texts that are answered or wait.\n# TYPE tapestry_texts gauge\n"
      "tapestry_texts {}\n",
      texts_now);
  return text + more;
}

namespace {

ServedModel::Options model_options(const ServeOptions& options) {
  ServedModel::Options model{.device = options.device, .batch_size = options.batch_size};
  model.format.format = options.weights;
  return model;
}

}  // namespace

Service::Service(const ServeOptions& options)
    : options_(options),
      models_(std::make_unique<ModelShelf>(
          options.models, model_options(options),
          options.memory.empty() ? std::nullopt : byte_count(options.memory))) {}

std::shared_ptr<ServedModel> Service::model_for(const Call& call, Ability ability) const {
  const std::vector<ModelShelf::Entry> entries = models_->entries();
  if (!call.has("model")) {
    const auto able = [&](const auto& entry) { return entry.can(ability); };
    const auto found = std::ranges::find_if(entries, able);
    if (found != entries.end()) return models_->get(found->name, call.end);
    refuse(404, "no model here can do this; it needs one of task ", tasks_that_can(ability), '.');
  }
  const std::string name = call.text("model");
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  const auto found = std::ranges::find(entries, name, &ModelShelf::Entry::name);
  if (found == entries.end()) {
    refuse(404, "there is no model '", name, "', there ", names.size() == 1 ? "is " : "are ",
           join(names, ", "), '.');
  }
  if (!found->can(ability)) {
    refuse(400, "the model '", name, "' cannot do this: it is of task ", found->config().task->name,
           ", expected ", tasks_that_can(ability), '.');
  }
  return models_->get(name, call.end);
}

Service::Admitted::Admitted(const Service& service, int64_t texts)
    : service_(service), texts_(texts) {
  if (service.ends.load()) refuse(503, "the server ends.");
  const int64_t most = service.options_.max_queue;
  const int64_t before = service.texts_now_.fetch_add(texts);
  if (before + texts <= most) return;
  service.texts_now_ -= texts;
  refuse(429, "the queue is full: at most ", most, " texts are answered or wait (--max-queue), ",
         before, " do, the request has ", texts, '.');
}

Service::Admitted::~Admitted() { service_.texts_now_ -= texts_; }

}  // namespace tapestry
