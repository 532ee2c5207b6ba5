// The model of training.teacher, whose predictions another one learns.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "apps/checkpoint/model_bundle.h"
#include "apps/config/config.h"

namespace tapestry {

class Teacher {
 public:
  enum class Weights { kRead, kSizesOnly };

  /// The teacher of a student with this config and these tokenizers, on the student's device and
  /// with the numbers of a model that answers. kSizesOnly does without its weights, for a plan.
  /// Throws Error(kData) for a folder without a model of the student's task and vocabulary, or one
  /// that cannot read the student's longest rows.
  Teacher(const Config& student, const TokenizerPair& tokenizers, Weights weights = Weights::kRead);

  /// Of its weights.
  int64_t bytes() const { return bytes_; }
  /// "5000000 parameters of FOLDER"
  const std::string& summary() const { return summary_; }
  /// A hash of its weights.
  std::string checksum() const;

  /// What a student learns from it of a batch. The result must not outlive this.
  Distillation of(const EncoderDecoder::Batch& batch) const;
  Distillation of(const LanguageModel::Batch& batch) const;

 private:
  using Bundle =
      std::variant<std::unique_ptr<TranslationModel<EncoderDecoder>>,
                   std::unique_ptr<TranslationModel<RnnAttention>>, std::unique_ptr<TextModel>>;

  template <class Batch>
  Distillation of_batch(const Batch& batch) const;

  const ParamStore& store() const;

  double weight_, temperature_;
  Bundle bundle_;
  int64_t bytes_ = 0;
  std::string summary_;
};

/// The config's teacher; null if it has none.
std::unique_ptr<Teacher> teacher_of(const Config& student, const TokenizerPair& tokenizers,
                                    Teacher::Weights weights = Teacher::Weights::kRead);

}  // namespace tapestry
