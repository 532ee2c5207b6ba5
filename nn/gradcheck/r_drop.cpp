// Rows of the gradient table for R-Drop's loss.
#include "nn/models/r_drop.h"
#include "nn/gradcheck/cases.h"
#include "nn/models/language_model.h"

namespace tapestry::gradchecks {
namespace {

constexpr double kAlpha = 1;

// Of one pass. The loss doubles them, so they are in host memory.
Tensor targets_of(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

GradcheckCase translation_case(const Inputs& in) {
  const auto built = std::make_shared<Built<EncoderDecoder>>(
      in, small_options(), Vocabulary{.source_size = 11, .target_size = 11});
  // Of both passes.
  const EncoderDecoder::Batch batch{
      in.ints({4, 7, 5, 3, 9, 3, 0, 0, 4, 7, 5, 3, 9, 3, 0, 0}, {4, 4}), in.lengths({4, 2, 4, 2}),
      in.ints({2, 6, 8, 2, 10, 0, 2, 6, 8, 2, 10, 0}, {4, 3}),
      targets_of({6, 8, 3, 10, 3, 0}, {2, 3})};
  return {"EncoderDecoder, R-Drop", disturbed_parameters(built->store), [built, batch] {
            return r_drop_loss(built->model, batch, {.label_smoothing = 0.1}, kAlpha).loss;
          }};
}

GradcheckCase classifier_case(const Inputs& in) {
  const auto built = std::make_shared<Built<SequenceClassifier>>(
      in, small_options(), LanguageModel::Vocabulary{.size = 11}, int64_t{3});
  const Tensor ids = in.ints({4, 7, 5, 9, 10, 6, 3, 0, 4, 7, 5, 9, 10, 6, 3, 0}, {4, 4});
  const Tensor lengths = in.lengths({4, 3, 4, 3}), labels = targets_of({2, 0}, {2});
  return {"SequenceClassifier, R-Drop", disturbed_parameters(built->store),
          [built, ids, lengths, labels] {
            return r_drop_of_logits(built->model(ids, lengths), labels, {}, kAlpha).loss;
          }};
}

}  // namespace

void add_r_drop(Cases& cases, const Inputs& in) {
  cases.push_back(translation_case(in));
  cases.push_back(classifier_case(in));
}

}  // namespace tapestry::gradchecks
