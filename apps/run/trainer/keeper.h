// The checkpoints of a training: which are written, kept and read.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/checkpoint/safetensors.h"
#include "apps/run/trainer/updater.h"

namespace tapestry {

class Keeper {
 public:
  /// Reads the tensors of a training that is resumed, or unrounded weights for one that begins with
  /// another model's. Throws Error(kData) when names, shapes or types of tensors differ.
  Keeper(Training& training, Updater& updater, const Resume& resume);

  /// Writes a checkpoint of the last update, which is finished.
  void save(bool best);
  /// An update found the weights before it good: those of a checkpoint that was saved earlier, too,
  /// so that this one is not deleted before a later one is as good.
  void found_good(int64_t update) {
    if (saved_step_ < update) good_step_ = saved_step_;
  }

  int64_t saved_step() const { return saved_step_; }  ///< -1: nothing was saved
  int64_t good_step() const { return good_step_; }    ///< of the last good checkpoint; -1: none

 private:
  void load(const Resume& resume);
  void load_training_tensors(const Resume& resume);
  void protect_earlier();
  struct Tensors {
    std::vector<TensorToWrite> model, training;
  };
  Tensors tensors_to_write(const NamedTensors& optimizer_state, const NamedTensors& all_masters);
  std::set<std::string> rounded_parameters() const;
  void load_first_masters(const TensorReader& weights);
  void set_first_lengths(const TensorReader& weights, const std::string& magnitude,
                         const Tensor& lengths) const;
  NamedTensors parameters_in(const TensorReader& source) const;

  Training& training_;
  Updater& updater_;
  TensorReader first_weights_;  ///< the initial weights, if bfloat16 rounded frozen parameters ...
  std::optional<std::set<std::string>> exact_elsewhere_;  ///< ... and their names, once known
  int64_t saved_step_ = -1;
  int64_t good_step_ = -1;
};

}  // namespace tapestry
