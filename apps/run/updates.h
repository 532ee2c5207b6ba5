// What the updates of a training are: how many, of which parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "nn/parameters.h"
#include "optim/optimizer.h"

namespace tapestry {

/// "6230016 parameters in 87 tensors", and how many of them learn where not all do: what
/// training.lora and each pattern of training.freeze reach.
std::string learning_summary(const ParamStore& store, const Config& config);

/// How many updates a run has: max_steps, or as many as num_train_epochs are, if those are fewer.
/// Every epoch counts as many batches as the first one has, so the number is known at the start,
/// and to a run that goes on as well; the last update is a whole one.
int64_t total_updates(const TrainingOptions& training, int64_t batches_in_epoch, int64_t more = 0);

/// How many `more` those are of a run of num_train_epochs whose batches were others before: it is
/// to read the `left` batches of an epoch, and those after it.
int64_t more_updates(const TrainingOptions& training, int64_t batches_in_epoch, int64_t step,
                     int64_t epoch, int64_t left);

/// Those that learn; the others ask for no gradient from here on. Throws Error(kConfig) where a
/// pattern matches no name, or where nothing is left.
NamedVars trained_parameters(const NamedVars& params, const Config& config);

/// Takes the memory of their gradients, which stays: before the first pass, so that it does not lie
/// among what passes take and free.
void reserve_gradients(const NamedVars& learning);

/// Those that learn by their weight decay, as `training.optimizer` says. Throws Error(kConfig)
/// where a pattern of decay_exclude matches no name of `all`.
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
