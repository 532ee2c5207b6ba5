// Rows of the gradient table for losses of preferences.
#include "nn/models/preference.h"
#include "nn/gradcheck/cases.h"
#include "nn/models/language_model.h"

namespace tapestry::gradchecks {
namespace {

GradcheckCase preference_case(const Inputs& in, const char* name,
                              const PreferenceOptions& options) {
  constexpr int32_t kNone = -1;
  const auto built = std::make_shared<Built<LanguageModel>>(
      in, small_options(), LanguageModel::Vocabulary{.size = 11}, /*causal=*/true);
  // Two prompts with two answers each. The loss selects the targets, so they are in host memory.
  const LanguageModel::Batch batch{
      in.ints({4, 7, 5, 9, 4, 7, 3, 0, 8, 2, 0, 0, 8, 1, 6, 10}, {4, 4}),
      Tensor::from<int32_t>({kNone, 5, 9, 2, kNone, 3, 2, kNone, 2, 6, kNone, kNone, 1, 6, 10, 2},
                            {4, 4}),
      in.lengths({4, 3, 2, 4})};
  const Var reference = in.normal({4}, 3);
  return {concat("LanguageModel, ", name), disturbed_parameters(built->store),
          [built, batch, reference, options] {
            const Var found = built->model.log_probabilities(batch);
            const Tensor before = reference.value().to(found.dtype());
            return preference_loss({found, {3, 2, 2, 4}, before}, options).loss;
          }};
}

}  // namespace

void add_preferences(Cases& cases, const Inputs& in) {
  using Loss = PreferenceLoss;
  cases.push_back(preference_case(in, "DPO", {.beta = 0.5, .label_smoothing = 0.1}));
  cases.push_back(preference_case(in, "IPO", {.loss = Loss::kIpo, .beta = 0.5}));
  cases.push_back(preference_case(in, "ORPO", {.loss = Loss::kOrpo, .beta = 0.5}));
  cases.push_back(preference_case(
      in, "SimPO", {.loss = Loss::kSimpo, .beta = 2, .margin = 0.3, .chosen_weight = 0.2}));
}

}  // namespace tapestry::gradchecks
