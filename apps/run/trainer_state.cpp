#include "apps/run/trainer_state.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

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

PlateauState plateau_of(const Json& value) {
  return {.scale = value.at("scale"),
          .has_best = value.at("has_best"),
          .best = value.at("best"),
          .without_best = value.at("without_best"),
          .cooldown_left = value.at("cooldown_left")};
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
  // Older checkpoints have one part.
  if (state.parts != 1) value["parts"] = state.parts;
  if (!state.kernels.empty()) value["kernels"] = state.kernels;
  // Other schedules have no such state, and older checkpoints do not know it.
  const PlateauState& plateau = state.plateau;
  if (plateau.has_best || plateau.without_best > 0 || plateau.cooldown_left > 0 ||
      plateau.scale != 1) {
    value["plateau"] = json_of(state.plateau);
  }
  return value.dump(2);
}

TrainerState parse_trainer_state(const std::string& json, const std::string& name) {
  try {
    const Json value = Json::parse(json);
    TrainerState state;
    state.step = value.at("step");
    state.position = {value.at("epoch"), value.at("batch")};
    state.best_metric = value.at("best_metric");
    state.best_step = value.at("best_step");
    state.validations_without_best = value.at("validations_without_best");
    state.skipped_updates = value.at("skipped_updates");
    state.skipped_in_a_row = value.at("skipped_in_a_row");
    state.seconds = value.at("seconds");
    state.parts = value.value("parts", state.parts);
    state.kernels = value.value("kernels", state.kernels);
    if (value.contains("plateau")) state.plateau = plateau_of(value.at("plateau"));
    return state;
  } catch (const Json::exception& error) {
    fail(ErrorKind::kData, "[checkpoint] ", name, ": ", error.what());
  }
}

}  // namespace tapestry
