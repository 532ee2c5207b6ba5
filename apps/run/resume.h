// The beginning of a training: a checkpoint to resume, the weights of another model (init_from), or
// nothing.
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

/// Found once, and then used by the command, the task and the trainer. It holds the files open and
/// none of their tensors in memory; its end closes them.
class Resume {
 public:
  /// `how` is "auto" for the newest whole checkpoint of the run folder, "never" for none, or the
  /// path of a checkpoint or of another run. If there is none, config.init_from counts. The config
  /// gets the values that were settled then: classes, and the format of images. Throws Error(kData)
  /// if the checkpoint is damaged or incomplete, and Error(kConfig) if it does not fit the config
  /// or the run folder.
  Resume(const std::string& how, const RunFolder& folder, Config& config);

  /// Resumes this checkpoint, or an incident, which has only weights and a place; starts from the
  /// beginning if there is none. Throws like the other constructor.
  Resume(std::optional<Checkpoint> found, Config& config);

  /// Facts for other ranks, which read no checkpoint. Tensors are sent separately.
  std::vector<std::string> facts() const;
  /// Made from those facts.
  explicit Resume(const std::vector<std::string>& facts);

  /// True if a training is resumed, false if it begins.
  bool goes_on() const { return goes_on_; }
  /// True for an incident, which has no optimizer state.
  bool has_weights_only() const { return weights_only_; }
  /// True if the choice for training.memory_budget is the checkpoint's.
  bool keeps_budget() const { return keeps_budget_; }
  /// The state of the checkpoint, or of a beginning.
  const TrainerState& state() const { return state_; }
  /// Empty if the task shall make its own.
  const TokenizerPair& tokenizers() const { return tokenizers_; }
  void use(TokenizerPair tokenizers) { tokenizers_ = std::move(tokenizers); }
  /// The kernels of the updates that come.
  void computed_by(const std::string& kernels) { state_.kernels = kernels; }
  /// Sets by how many updates a run of epochs is longer than its present batches say.
  void longer_by(int64_t updates) {
    state_.more_updates = updates;
    state_.counts_anew = false;
  }
  /// The reasons why newer checkpoints were skipped, a line each; "" if none was.
  const std::string& passed_over() const { return passed_over_; }
  /// Consequences for a resumed training: the data that it reads, and the meaning of its best
  /// value. A sentence each.
  const std::vector<std::string>& consequences() const { return consequences_; }
  /// The same for files whose bytes have changed, perhaps by mistake.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Differences between the config and the checkpoint's, or in the computation of the model that a
  /// training begins with; "" if there are none.
  const std::string& changes() const { return changes_; }

  /// If a training begins with another model's weights: reads them into the task's, and returns a
  /// sentence about them; else "". Throws as take_over_parameters(), and Error(kConfig) if an
  /// adapter of that model would be lost, if a fresh parameter would never learn, or if
  /// model.initializer is asked for and nothing is drawn.
  std::string take_over(TrainingTask& task, const Config& config);

  /// The weights that a training resumes or begins with; without tensors if it begins with random
  /// ones.
  const TensorReader& model() const { return model_; }
  /// The other tensors of a trainer's checkpoint.
  const TensorReader& training() const { return training_; }
  /// Those that its task keeps.
  const TensorReader& task() const { return task_; }

 private:
  void begin(std::optional<Checkpoint> found, Config& config);
  void go_on(Checkpoint checkpoint, Config& config);
  void begin_with(ModelFiles pretrained, Config& config);
  void check_initializer(const ParamStore& store) const;
  /// Looks at the files of the data.
  void follow_data(const Config& config);
  void follow_teacher(const Config& config);
  void follow_rows(const Config& config, const std::vector<DataFile>& train_before);
  void follow_metrics(const Config& config, const std::vector<DataFile>& valid_before);

  bool goes_on_ = false, weights_only_ = false, keeps_budget_ = false;
  TrainerState state_;
  TokenizerPair tokenizers_;
  std::string passed_over_, changes_;
  std::vector<std::string> consequences_, warnings_;
  std::optional<Config> before_;  // of the checkpoint
  TensorReader model_, training_, task_;
  std::optional<std::vector<std::string>> old_labels_;  // of the model in init_from
  std::string asked_initializer_;  // "model.initializer: kaiming" where that model has another one
};

}  // namespace tapestry
