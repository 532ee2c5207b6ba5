// Where a training starts: at a checkpoint that it goes on from, at the weights of another model
// (init_from), or anew.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/config/config.h"
#include "apps/run/trainer_state.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// Found once, and then asked by the command, the task and the trainer. It holds the files open and
/// none of their tensors in memory; when it goes, so do the open files.
class Resume {
 public:
  /// `how` is "auto" for the newest whole checkpoint of the run folder, "never" for none, or the
  /// path of a checkpoint or of another run. Where there is none, config.init_from counts. The
  /// config is completed by what was settled then: classes, and the format of images.
  /// Throws Error(kData) when what was asked for is damaged or incomplete, and Error(kConfig) when
  /// it does not go with the config or the run folder.
  Resume(const std::string& how, const RunFolder& folder, Config& config);

  /// From this checkpoint, or an incident, which has weights and a place only; from the beginning
  /// where there is none. Throws as the other one.
  Resume(std::optional<Checkpoint> found, Config& config);

  /// What other ranks must know of it; they read no checkpoint. Tensors travel apart from this.
  std::vector<std::string> facts() const;
  /// From those.
  explicit Resume(const std::vector<std::string>& facts);

  /// Whether a training goes on. Else it begins.
  bool goes_on() const { return goes_on_; }
  /// Whether it is an incident's: no state of an optimizer.
  bool has_weights_only() const { return weights_only_; }
  /// Whether the choice of training.memory_budget is the checkpoint's.
  bool keeps_budget() const { return keeps_budget_; }
  /// Of the checkpoint, or of a beginning.
  const TrainerState& state() const { return state_; }
  /// Empty where the task is to make its own.
  const TokenizerPair& tokenizers() const { return tokenizers_; }
  void use(TokenizerPair tokenizers) { tokenizers_ = std::move(tokenizers); }
  /// The kernels of the updates that come.
  void computed_by(const std::string& kernels) { state_.kernels = kernels; }
  /// By how many updates more than its batches of today say a run of epochs ends.
  void longer_by(int64_t updates) {
    state_.more_updates = updates;
    state_.counts_anew = false;
  }
  /// Why newer checkpoints were passed over, a line each; "" where none was.
  const std::string& passed_over() const { return passed_over_; }
  /// What follows for a training that goes on: what it reads, and what its best value is of. A
  /// sentence each.
  const std::vector<std::string>& consequences() const { return consequences_; }
  /// The same of files that hold other bytes than before, which nobody may have meant to change.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// What the config does otherwise than the checkpoint's, or what the model that a training begins
  /// with computes otherwise; "" where nothing.
  const std::string& changes() const { return changes_; }

  /// Where a training begins with another model's weights: reads them into the task's, and returns
  /// a sentence about them; else "". Throws as take_over_parameters(), and Error(kConfig) where an
  /// adapter of that model would be lost, or a fresh parameter never learn.
  std::string take_over(TrainingTask& task, const Config& config);

  /// The weights that a training goes on from, or begins with; of no tensors where it begins anew.
  const TensorReader& model() const { return model_; }
  /// What else a checkpoint of the trainer holds in tensors.
  const TensorReader& training() const { return training_; }

 private:
  void begin(std::optional<Checkpoint> found, Config& config);
  void go_on(Checkpoint checkpoint, Config& config);
  void begin_with(ModelFiles pretrained, Config& config);
  /// Looks at the files of the data.
  void follow_data(const Config& config);

  bool goes_on_ = false, weights_only_ = false, keeps_budget_ = false;
  TrainerState state_;
  TokenizerPair tokenizers_;
  std::string passed_over_, changes_;
  std::vector<std::string> consequences_, warnings_;
  std::optional<Config> before_;  // of the checkpoint
  TensorReader model_, training_;
  std::optional<std::vector<std::string>> old_labels_;  // of the model in init_from
};

}  // namespace tapestry
