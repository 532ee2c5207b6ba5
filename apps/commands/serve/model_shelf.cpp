#include "apps/commands/serve/model_shelf.h"

#include <algorithm>
#include <utility>

#include "apps/commands/serve/http_error.h"
#include "apps/tasks/prompts/talk_format.h"

namespace tapestry {
namespace {

// Of a number in a format, with its scales.
double bytes_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return 4;
    case WeightFormat::kBFloat16:
      return 2;
    case WeightFormat::kInt8:
      return 1.05;
    case WeightFormat::kInt4:
      return 0.65;
  }
  return 4;
}

std::shared_ptr<const ModelFacts> facts_of(const std::string& path, const WeightChoice& choice) {
  const ModelFiles files = read_model_files(path);
  check_served(files.config, path);
  const WeightFormat format =
      choice.format.value_or(files.config.training.quantize.value_or(WeightFormat::kFloat32));
  double numbers = 0;
  for (const StoredTensor& tensor : files.tensors.tensors()) {
    numbers += static_cast<double>(tensor.shape.numel());
  }
  const bool continues = files.config.task->can(kContinuesText);
  return std::make_shared<const ModelFacts>(
      ModelFacts{.config = files.config,
                 .talks = continues && knows_talks(files.config, files.tokenizers),
                 .bytes = static_cast<int64_t>(numbers * bytes_of(format))});
}

}  // namespace

ModelShelf::ModelShelf(const std::vector<ServedPlace>& places, const ServedModel::Options& options,
                       std::optional<int64_t> most_bytes)
    : options_(options), most_bytes_(most_bytes) {
  for (const ServedPlace& place : places) {
    Slot slot{.place = place};
    slot.facts = facts_of(place.path, options_of(slot).format);
    if (most_bytes_ && slot.facts->bytes > *most_bytes_) {
      fail(ErrorKind::kConfig, "[serve] the weights of ", slot.place.name, " take ",
           slot.facts->bytes, " bytes, --memory allows ", *most_bytes_, '.');
    }
    if (!most_bytes_) put(slot, load(slot));
    slots_.push_back(std::move(slot));
  }
}

ServedModel::Options ModelShelf::options_of(const Slot& slot) const {
  ServedModel::Options options = options_;
  if (slot.place.weights) options.format = *slot.place.weights;
  return options;
}

std::shared_ptr<ServedModel> ModelShelf::load(const Slot& slot) const {
  return std::make_shared<ServedModel>(slot.place.name, slot.place.path, options_of(slot));
}

void ModelShelf::put(Slot& slot, std::shared_ptr<ServedModel> model) {
  alive_.push_back({model, slot.facts->bytes});
  slot.loaded = std::move(model);
  ++slot.loads;
}

int64_t ModelShelf::bytes_now() {
  std::erase_if(alive_, [](const Alive& one) { return one.model.expired(); });
  int64_t bytes = bytes_loading_;
  for (const Alive& one : alive_) bytes += one.bytes;
  return bytes;
}

bool ModelShelf::make_room(int64_t bytes) {
  if (!most_bytes_) return true;
  while (bytes_now() + bytes > *most_bytes_) {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_) {
      const bool idle = slot.loaded && slot.loaded.use_count() == 1;
      if (idle && (oldest == nullptr || slot.used < oldest->used)) oldest = &slot;
    }
    if (oldest == nullptr) return false;
    oldest->loaded.reset();
  }
  return true;
}

std::vector<ModelShelf::Entry> ModelShelf::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const Slot& slot : slots_) {
    entries.push_back({.name = slot.place.name,
                       .facts = slot.facts,
                       .loaded = slot.loaded != nullptr,
                       .loads = slot.loads,
                       .joined = slot.loaded ? slot.loaded->joined() : 0});
  }
  return entries;
}

std::shared_ptr<ServedModel> ModelShelf::get(const std::string& name, const CallEnd& end) {
  std::unique_lock lock(mutex_);
  Slot& slot = *std::ranges::find(slots_, name, [](const Slot& one) { return one.place.name; });
  slot.used = ++uses_;
  wait_for_answer(changed_, lock, end, [&] {
    return slot.loaded != nullptr || (!slot.loading && make_room(slot.facts->bytes));
  });
  if (slot.loaded) return slot.loaded;
  const int64_t bytes = slot.facts->bytes;
  slot.loading = true;
  bytes_loading_ += bytes;
  lock.unlock();
  std::shared_ptr<ServedModel> model;
  std::string problem;
  try {
    model = load(slot);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  lock.lock();
  slot.loading = false;
  bytes_loading_ -= bytes;
  if (model) put(slot, model);
  changed_.notify_all();
  if (!model) refuse(500, "the model '", name, "' cannot be read: ", problem);
  return model;
}

void ModelShelf::reload(Slot& slot) {
  const auto facts = facts_of(slot.place.path, options_of(slot).format);
  if (most_bytes_ && facts->bytes > *most_bytes_) {
    fail(ErrorKind::kConfig, "[serve] its weights take ", facts->bytes, " bytes, --memory allows ",
         *most_bytes_, '.');
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !slot.loading; });
  const bool was_loaded = slot.loaded != nullptr;
  const bool fits = !most_bytes_ || bytes_now() + facts->bytes <= *most_bytes_;
  std::shared_ptr<ServedModel> model;
  if (was_loaded && fits) {
    slot.loading = true;
    bytes_loading_ += facts->bytes;
    lock.unlock();
    try {
      model = load(slot);
    } catch (...) {
      lock.lock();
      slot.loading = false;
      bytes_loading_ -= facts->bytes;
      changed_.notify_all();
      throw;
    }
    lock.lock();
    slot.loading = false;
    bytes_loading_ -= facts->bytes;
  }
  slot.facts = facts;
  const std::shared_ptr<ServedModel> old = std::exchange(slot.loaded, nullptr);
  if (model) put(slot, std::move(model));
  changed_.notify_all();
  lock.unlock();  // the old one may end here, which waits for its searches
}

void ModelShelf::reload(const std::function<void(const std::string& line)>& tell) {
  for (Slot& slot : slots_) {
    try {
      reload(slot);
      tell(concat(slot.place.name, " is read again from ", slot.place.path));
    } catch (const std::exception& error) {
      tell(concat(slot.place.name, " stays as it was: ", error.what()));
    }
  }
}

}  // namespace tapestry
