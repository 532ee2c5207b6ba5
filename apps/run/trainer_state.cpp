#include "apps/run/trainer_state.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tapestry {

using Json = nlohmann::ordered_json;

std::string to_json(const TrainerState& state) {
  return Json{{"step", state.step},
              {"epoch", state.position.epoch},
              {"batch", state.position.batch},
              {"best_metric", state.best_metric},
              {"best_step", state.best_step},
              {"validations_without_best", state.validations_without_best},
              {"skipped_updates", state.skipped_updates},
              {"skipped_in_a_row", state.skipped_in_a_row},
              {"seconds", state.seconds}}
      .dump(2);
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
    return state;
  } catch (const Json::exception& error) {
    fail(ErrorKind::kData, "[checkpoint] ", name, ": ", error.what());
  }
}

}  // namespace tapestry
