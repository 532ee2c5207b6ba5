// The models of a server: which there are, which are in memory, and new ones in place of old.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/serve/served_model.h"
#include "apps/config/section_serve.h"

namespace tapestry {

/// What is known of a model without its weights.
struct ModelFacts {
  Config config;
  bool talks = false;  ///< it answers talks
  int64_t bytes = 0;   ///< of its weights in memory
};

class ModelShelf {
 public:
  /// With `most_bytes` models are loaded when they are asked for, and those that have not been used
  /// for longest are freed for others; without it all are loaded here. Throws as ServedModel, and
  /// Error(kConfig) for a model that alone is larger.
  ModelShelf(const std::vector<ServedPlace>& places, const ServedModel::Options& options,
             std::optional<int64_t> most_bytes);

  struct Entry {
    std::string name;
    std::shared_ptr<const ModelFacts> facts;
    bool loaded = false;
    int64_t loads = 0;   ///< how often it was loaded
    int64_t joined = 0;  ///< ServedModel::joined() of what is loaded

    bool can(Ability ability) const { return facts->config.task->can(ability); }
    const Config& config() const { return facts->config; }
  };
  std::vector<Entry> entries() const;

  /// Loads the model if it must, and waits for others to be freed. It stays in memory as long as
  /// it is held. Throws as wait_for_answer(), and HttpError(500) for one that cannot be read any
  /// more.
  std::shared_ptr<ServedModel> get(const std::string& name, const CallEnd& end);

  /// Reads all models again; who holds one goes on with the old one. Calls tell(line) for each. A
  /// model that cannot be read stays as it was.
  void reload(const std::function<void(const std::string& line)>& tell);

 private:
  struct Slot {
    ServedPlace place;
    std::shared_ptr<const ModelFacts> facts = {};
    std::shared_ptr<ServedModel> loaded = {};
    bool loading = false;
    uint64_t used = 0;  ///< when it was asked for last
    int64_t loads = 0;
  };
  struct Alive {
    std::weak_ptr<ServedModel> model;
    int64_t bytes;
  };

  ServedModel::Options options_of(const Slot& slot) const;
  std::shared_ptr<ServedModel> load(const Slot& slot) const;
  // The caller has the lock.
  int64_t bytes_now();
  bool make_room(int64_t bytes);
  void put(Slot& slot, std::shared_ptr<ServedModel> model);
  void reload(Slot& slot);

  const ServedModel::Options options_;
  const std::optional<int64_t> most_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::vector<Alive> alive_;   // all that are in memory, those that were replaced, too
  int64_t bytes_loading_ = 0;  // of those that come
  uint64_t uses_ = 0;
};

}  // namespace tapestry
