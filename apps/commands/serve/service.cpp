#include "apps/commands/serve/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/serve/http_error.h"
#include "apps/config/byte_count.h"
#include "apps/tasks/task.h"
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

std::vector<ModelShelf::Place> places_of(const std::vector<std::string>& words) {
  std::vector<ModelShelf::Place> places;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == 0 || at == std::string::npos || at + 1 == word.size()) {
      fail(ErrorKind::kConfig, "[serve] expected --model NAME=DIR, got '", word, "'.");
    }
    const std::string name = word.substr(0, at);
    const auto fits = [](unsigned char c) {
      return std::isalnum(c) != 0 || std::string_view("-_.:/").find(c) != std::string_view::npos;
    };
    if (!std::ranges::all_of(name, fits)) {
      fail(ErrorKind::kConfig, "[serve] a model's name has letters, digits and -_.:/, got '",
           printable(name), "'.");
    }
    for (const auto& [other, path] : places) {
      if (other != name) continue;
      fail(ErrorKind::kConfig, "[serve] two models have the name '", name, "': ", path, " and ",
           word.substr(at + 1), '.');
    }
    places.push_back({name, word.substr(at + 1)});
  }
  return places;
}

std::optional<int64_t> most_bytes_of(const std::string& memory) {
  if (memory.empty()) return std::nullopt;
  const std::optional<int64_t> bytes = byte_count(memory);
  if (bytes) return bytes;
  fail(ErrorKind::kConfig, "[serve] expected --memory in bytes, as in 4GB or 1.5 GiB, got '",
       printable(memory), "'.");
}

}  // namespace

Service::Service(const ServeArguments& arguments)
    : arguments_(arguments),
      models_(std::make_unique<ModelShelf>(places_of(arguments.models),
                                           ServedModel::Options{.device = arguments.compute.device,
                                                                .format = arguments.format,
                                                                .batch_size = arguments.batch_size},
                                           most_bytes_of(arguments.memory))) {}

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
  const int64_t most = service.arguments_.max_queue;
  const int64_t before = service.texts_now_.fetch_add(texts);
  if (before + texts <= most) return;
  service.texts_now_ -= texts;
  refuse(429, "the queue is full: at most ", most, " texts are answered or wait (--max-queue), ",
         before, " do, the request has ", texts, '.');
}

Service::Admitted::~Admitted() { service_.texts_now_ -= texts_; }

}  // namespace tapestry
