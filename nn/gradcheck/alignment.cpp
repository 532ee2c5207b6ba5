// Rows of the gradient table for guided alignment.
#include "nn/gradcheck/cases.h"
#include "nn/models/distillation.h"
#include "nn/models/r_drop.h"

namespace tapestry::gradchecks {
namespace {

constexpr Vocabulary kVocabulary{.source_size = 11, .target_size = 11};

// The first target token has one source token, the second two, the third none.
EncoderDecoder::Batch aligned_pairs(const Inputs& in) {
  EncoderDecoder::Batch batch{in.ints({4, 7, 5, 3, 9, 3, 0, 0}, {2, 4}), in.lengths({4, 2}),
                              in.ints({2, 6, 8, 2, 10, 0}, {2, 3}),
                              Tensor::from<int32_t>({6, 8, 3, 10, 3, 0}, {2, 3})};
  batch.alignment = {Tensor::from<float>({0, 1, 0, 0, 0.5, 0, 0.5, 0, 0, 0, 0, 0,  //
                                          2, 0, 0, 0, 0,   0, 0,   0, 0, 0, 0, 0},
                                         {2, 3, 4}),
                     hidden_keys(Tensor::from<int32_t>({4, 2}, {2}), 4), 0.7};
  return batch;
}

GradcheckCase aligned_case(const Inputs& in, const std::string& name, const ModelOptions& options) {
  const auto built = std::make_shared<Built<EncoderDecoder>>(in, options, kVocabulary);
  return {name, disturbed_parameters(built->store), [built, batch = aligned_pairs(in)] {
            return built->model.loss(batch, {.label_smoothing = 0.1, .normalizer = 5}).loss;
          }};
}

GradcheckCase both_passes_case(const Inputs& in, const ModelOptions& options) {
  const auto built = std::make_shared<Built<EncoderDecoder>>(in, options, kVocabulary);
  EncoderDecoder::Batch batch = aligned_pairs(in);
  for (Tensor* input : {&batch.source, &batch.source_lengths, &batch.target_in}) {
    *input = in.ints(twice(input->to(Device{})).to_vector<int32_t>(),
                     input->shape().with(0, 2 * input->shape()[0]));
  }
  batch.alignment.hidden = twice(batch.alignment.hidden);
  return {"EncoderDecoder, R-Drop and guided alignment", disturbed_parameters(built->store),
          [built, batch] { return r_drop_loss(built->model, batch, {}, 1).loss; }};
}

}  // namespace

void add_alignments(Cases& cases, const Inputs& in) {
  ModelOptions options = small_options();
  options.alignment_layer = 1;
  cases.push_back(aligned_case(in, "EncoderDecoder, guided alignment", options));
  cases.push_back(both_passes_case(in, options));
  ModelOptions recurrent = options;
  recurrent.decoder_self_attention = DecoderSelfAttention::kSsru;
  recurrent.alignment_layer = 2;
  recurrent.recompute = true;
  cases.push_back(aligned_case(in, "EncoderDecoder, SSRU, guided, recomputed", recurrent));
  ModelOptions grouped = pre_norm_options();
  grouped.alignment_layer = 2;
  grouped.attention_softcap = 0.8;
  grouped.recompute = true;
  cases.push_back(aligned_case(in, "EncoderDecoder, guided, softcap, recomputed", grouped));
}

}  // namespace tapestry::gradchecks
