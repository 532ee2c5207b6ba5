#include "apps/run/trainer_state.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace tapestry {

using Json = nlohmann::ordered_json;

namespace {

Json json_of(const PlateauState& plateau) {
  return Json{{"scale", plateau.scale},
              {"has_best", plateau.has_best},
              {"best", plateau.best},
              {"without_best", plateau.without_best},
              {"cooldown_left", plateau.cooldown_left}};
}

Json json_of(const std::vector<DataFile>& files) {
  Json list = Json::array();
  for (const DataFile& file : files) {
    list.push_back({{"bytes", file.bytes}, {"checksum", file.checksum}});
    if (file.changed != 0) list.back()["changed"] = file.changed;
  }
  return list;
}

/// The keys of one object of the file.
class Reader {
 public:
  Reader(const Json& object, const std::string& name) : object_(object), name_(name) {}

  bool has(const char* key) const { return object_.contains(key); }
  Reader inside(const char* key) const { return {object_.at(key), name_}; }
  /// The objects of a list; none if there is no such key.
  std::vector<Reader> each(const char* key) const {
    std::vector<Reader> objects;
    if (!has(key)) return objects;
    if (!object_.at(key).is_array()) refuse(key, "a list");
    for (const Json& object : object_.at(key)) objects.push_back({object, name_});
    return objects;
  }

  int64_t count(const char* key, int64_t low = 0, int64_t high = kMost) const {
    const Json& value = object_.at(key);
    const bool fits = value.is_number_integer() && value >= low && value <= high;
    if (!fits) refuse(key, concat("an integer from ", low, " to ", high));
    return value;
  }
  int64_t integer(const char* key) const {
    constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
    return count(key, -kAny, kAny);
  }
  double number(const char* key) const {
    const Json& value = object_.at(key);
    if (!value.is_number()) refuse(key, "a number");
    return value;
  }
  double positive_or_0(const char* key, double high) const {
    const double value = number(key);
    if (!(value >= 0 && value <= high)) refuse(key, concat("a number from 0 to ", high));
    return value;
  }
  bool truth(const char* key) const { return object_.at(key); }
  std::string text(const char* key) const { return object_.at(key); }

 private:
  static constexpr int64_t kMost = int64_t{1} << 53;  // of updates, or anything else

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail(ErrorKind::kData, "[checkpoint] ", name_, ": ", key, " must be ", expected, ", got ",
         object_.at(key).dump(), '.');
  }

  const Json& object_;
  const std::string& name_;
};

PlateauState plateau_of(const Reader& value) {
  return {.scale = value.positive_or_0("scale", 1),
          .has_best = value.truth("has_best"),
          .best = value.number("best"),
          .without_best = value.count("without_best"),
          .cooldown_left = value.count("cooldown_left")};
}

std::vector<TakenBatches> taken_of(const std::vector<Reader>& list) {
  std::vector<TakenBatches> taken;
  for (const Reader& value : list) {
    taken.push_back(
        {value.text("batch_type"), value.count("batch_size", 1), value.count("batches")});
  }
  return taken;
}

std::vector<DataFile> files_of(const std::vector<Reader>& list) {
  std::vector<DataFile> files;
  for (const Reader& value : list) {
    files.push_back({.bytes = value.count("bytes"),
                     .changed = value.has("changed") ? value.integer("changed") : 0,
                     .checksum = value.text("checksum")});
  }
  return files;
}

}  // namespace

std::string to_json(const TrainerState& state) {
  Json value{{"step", state.step},
             {"epoch", state.position.epoch},
             {"batch", state.position.batch},
             {"best_metric", state.best_metric},
             {"best_step", state.best_step},
             {"validations_without_best", state.validations_without_best},
             {"skipped_updates", state.skipped_updates},
             {"skipped_in_a_row", state.skipped_in_a_row},
             {"seconds", state.seconds}};
  // Absent in older checkpoints.
  if (state.tokens > 0) value["tokens"] = state.tokens;
  if (state.grad_norm > 0) value["grad_norm"] = state.grad_norm;
  // Both absent in older checkpoints.
  if (state.first_nll > 0) value["first_nll"] = state.first_nll;
  if (state.above_guess_in_a_row > 0) value["above_guess_in_a_row"] = state.above_guess_in_a_row;
  // Older checkpoints have one part.
  if (state.parts != 1) value["parts"] = state.parts;
  if (!state.kernels.empty()) value["kernels"] = state.kernels;
  // Empty in most runs, and absent in older checkpoints.
  for (const TakenBatches& part : state.position.before) {
    value["before"].push_back({{"batch_type", part.batch_type},
                               {"batch_size", part.batch_size},
                               {"batches", part.batches}});
  }
  if (state.more_updates != 0) value["more_updates"] = state.more_updates;
  if (state.owes_validation) value["owes_validation"] = true;
  if (state.counts_anew) value["counts_anew"] = true;
  if (!state.train_files.empty()) value["train_files"] = json_of(state.train_files);
  if (!state.valid_files.empty()) value["valid_files"] = json_of(state.valid_files);
  if (!state.teacher_files.empty()) value["teacher_files"] = json_of(state.teacher_files);
  // Other schedules have no such state; absent in older checkpoints.
  const PlateauState& plateau = state.plateau;
  if (plateau.has_best || plateau.without_best > 0 || plateau.cooldown_left > 0 ||
      plateau.scale != 1) {
    value["plateau"] = json_of(state.plateau);
  }
  if (state.cooldown.has_begun()) {
    value["cooldown"] = {{"begin", state.cooldown.begin},
                         {"updates", state.cooldown.updates},
                         {"hours", state.cooldown.hours}};
  }
  return value.dump(2);
}

TrainerState parse_trainer_state(const std::string& json, const std::string& name) {
  try {
    constexpr double kMostSeconds = 1e10, kLargestLoss = 1e300;
    const Json object = Json::parse(json);
    const Reader value(object, name);
    TrainerState state;
    state.step = value.count("step");
    state.position = {value.count("epoch"), value.count("batch"), taken_of(value.each("before"))};
    state.best_metric = value.number("best_metric");
    state.best_step = value.count("best_step", -1, state.step);
    state.validations_without_best = value.count("validations_without_best");
    state.skipped_updates = value.count("skipped_updates", 0, state.step);
    state.skipped_in_a_row = value.count("skipped_in_a_row", 0, state.skipped_updates);
    state.seconds = value.positive_or_0("seconds", kMostSeconds);
    if (value.has("tokens")) state.tokens = value.count("tokens");
    if (value.has("grad_norm")) state.grad_norm = value.positive_or_0("grad_norm", kLargestLoss);
    if (value.has("first_nll")) state.first_nll = value.positive_or_0("first_nll", kLargestLoss);
    if (value.has("above_guess_in_a_row")) {
      state.above_guess_in_a_row = value.count("above_guess_in_a_row", 0, state.step);
    }
    if (value.has("parts")) state.parts = value.count("parts", 1);
    if (value.has("kernels")) state.kernels = value.text("kernels");
    if (value.has("more_updates")) state.more_updates = value.integer("more_updates");
    if (value.has("owes_validation")) state.owes_validation = value.truth("owes_validation");
    if (value.has("counts_anew")) state.counts_anew = value.truth("counts_anew");
    state.train_files = files_of(value.each("train_files"));
    state.valid_files = files_of(value.each("valid_files"));
    state.teacher_files = files_of(value.each("teacher_files"));
    if (value.has("plateau")) state.plateau = plateau_of(value.inside("plateau"));
    if (value.has("cooldown")) {
      const Reader cooldown = value.inside("cooldown");
      state.cooldown = {cooldown.count("begin", 0, state.step), cooldown.count("updates", 1),
                        cooldown.number("hours")};
    }
    return state;
  } catch (const Json::exception& error) {
    fail(ErrorKind::kData, "[checkpoint] ", name, ": ", error.what());
  }
}

}  // namespace tapestry
