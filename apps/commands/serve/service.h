// What answers requests: the models, the limits, and what is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands/serve/call.h"
#include "apps/commands/serve/door/door_counts.h"
#include "apps/commands/serve/model_shelf.h"
#include "apps/config/section_serve.h"

namespace tapestry {

/// Counts for /metrics.
class ServeMetrics {
 public:
  void count(const std::string& path, int status, double seconds);
  /// In Prometheus' text format.
  std::string text(int64_t texts_now, const std::string& more) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  std::map<std::string, double> seconds_;
};

class Service {
 public:
  /// Throws as ModelShelf.
  explicit Service(const ServeOptions& options);

  const ServeOptions& options() const { return options_; }
  ModelShelf& models() const { return *models_; }
  /// The model that a call names, or the first that can do it. Throws HttpError(404, 400), and as
  /// ModelShelf::get().
  std::shared_ptr<ServedModel> model_for(const Call& call, Ability ability) const;

  /// While it lives, so many texts of a request are answered. Throws HttpError(429) if that would
  /// be more than --max-queue.
  class Admitted {
   public:
    Admitted(const Service& service, int64_t texts);
    ~Admitted();
    Admitted(const Admitted&) = delete;
    Admitted& operator=(const Admitted&) = delete;

   private:
    const Service& service_;
    int64_t texts_;
  };
  int64_t texts_now() const { return texts_now_.load(); }
  ServeMetrics& metrics() const { return metrics_; }
  DoorCounts& connections() const { return connections_; }

  /// Once true, requests that wait are refused.
  std::atomic<bool> ends{false};

 private:
  const ServeOptions options_;
  std::unique_ptr<ModelShelf> models_;
  mutable std::atomic<int64_t> texts_now_{0};
  mutable ServeMetrics metrics_;
  mutable DoorCounts connections_;
};

}  // namespace tapestry
