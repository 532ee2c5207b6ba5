// The updates of a training: their number and their parameters.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "nn/layers/parameters.h"
#include "optim/optimizer.h"

namespace tapestry {

/// An update that no training reaches.
constexpr int64_t kNoStop = std::numeric_limits<int64_t>::max();

/// "6230016 parameters in 87 tensors", and the number of those that learn, if not all do: the ones
/// matched by training.lora and by each pattern of training.freeze.
std::string learning_summary(const ParamStore& store, const Config& config);

/// Number of updates of a run: max_steps, or the updates in num_train_epochs, if those are fewer.
/// Every epoch counts as many batches as the first one has, so the number is known at the start,
/// and to a resumed run as well; the last update is a whole one.
int64_t total_updates(const TrainingOptions& training, int64_t batches_in_epoch, int64_t more = 0);

/// How many `more` updates a run of num_train_epochs has whose batches were others before: it reads
/// the `left` batches of an epoch, and the epochs after it.
int64_t more_updates(const TrainingOptions& training, int64_t batches_in_epoch, int64_t step,
                     int64_t epoch, int64_t left);

/// The parameters that learn; the others get no gradient from now on. Throws Error(kConfig) if a
/// pattern matches no name, or if nothing is left.
NamedVars trained_parameters(const NamedVars& params, const Config& config);

/// Allocates the memory of their gradients, which stays: before the first pass, so that it does not
/// lie among blocks that passes allocate and free.
void reserve_gradients(const NamedVars& learning);

/// Groups the learning parameters by their weight decay, as `training.optimizer` says. Throws
/// Error(kConfig) if a pattern of decay_exclude matches no name of `all`.
std::vector<ParamGroup> decay_groups(const TrainingOptions& training, const NamedVars& learning,
                                     const NamedVars& all);

/// Whether muon makes it orthogonal, if it learns.
bool is_orthogonalized(const Config& config, const Parameter& parameter);

/// The same as the optimizer of the config takes them: of muon, first the matrices that it makes
/// orthogonal, then those of the AdamW beside it, with its rate. Throws Error(kConfig) where muon
/// finds no such matrix, or a pattern of adamw_parameters none.
std::vector<ParamGroup> update_groups(const Config& config, const NamedVars& learning,
                                      const ParamStore& store);

}  // namespace tapestry
