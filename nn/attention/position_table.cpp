#include "nn/attention/position_table.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "nn/layers/layers.h"

namespace tapestry {

struct PositionTable::State {
  std::mutex mutex;
  Formula formula;  ///< empty: the rows are learned
  Var table;
};

PositionTable::PositionTable(const Var& learned) : state_(std::make_shared<State>()) {
  state_->table = learned;
}

PositionTable::PositionTable(int64_t rows, Formula formula) : state_(std::make_shared<State>()) {
  state_->table = formula(rows);
  state_->formula = std::move(formula);
}

// A table that was handed out stays as it is, since a tape may hold it: a longer one replaces it.
// It doubles, so that a text which grows token by token makes few of them.
Var PositionTable::rows(int64_t count) const {
  if (state_ == nullptr) return {};
  const std::lock_guard lock(state_->mutex);
  const int64_t held = state_->table.shape()[0];
  if (count <= held) return state_->table;
  if (!state_->formula) {
    fail(ErrorKind::kData, "[positions] the model learned ", held, " positions, got a sequence of ",
         count, " tokens.");
  }
  state_->table = state_->formula(std::max(count, 2 * held));
  return state_->table;
}

PositionTable rotary_positions(int64_t rows, int64_t size, const RopeFrequencies& w,
                               const ParamScope& scope) {
  return {rows, [size, w, dtype = scope.dtype(), device = scope.device()](int64_t count) {
            return rope_table(count, size, w, dtype, device);
          }};
}

}  // namespace tapestry
