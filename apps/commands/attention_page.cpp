#include "apps/commands/attention_page.h"

namespace tapestry {

AttentionPage attention_page(const TranslationModel<EncoderDecoder>& model,
                             const std::vector<int32_t>& source,
                             const std::vector<int32_t>& target) {
  std::vector<int32_t> read = source, fed = target;
  read.push_back(kEosId);
  fed.insert(fed.begin(), kBosId);
  const auto row = [&](const std::vector<int32_t>& ids) {
    return Tensor::from(ids, {1, static_cast<int64_t>(ids.size())}).to(model.device());
  };
  const Tensor lengths = Tensor::full({1}, double(read.size()), DType::kInt32).to(model.device());
  AttentionRecorder recorder;
  model.model.decode(row(fed), model.model.encode(row(read), lengths), lengths);

  AttentionPage page;
  for (const int32_t id : read) page.source.push_back(model.tokenizers.source->piece(id));
  for (const int32_t id : fed) page.target.push_back(model.tokenizers.target->piece(id));
  const auto take = [&](const std::string& name, bool source_queries, bool source_keys) {
    const Tensor recorded = recorder.weights().at(page.maps.size()).to(Device{});
    const Tensor weights = recorded.to(wider(recorded.dtype()));
    const Shape& shape = weights.shape();
    page.maps.push_back(
        {name, source_queries, source_keys, weights.reshape({shape[1], shape[2], shape[3]})});
  };
  const ModelOptions& options = model.config.model;
  for (int64_t i = 1; i <= options.encoder_layers; ++i) {
    take(concat("encoder layer ", i, ", self-attention"), true, true);
  }
  for (int64_t i = 1; i <= options.decoder_layers; ++i) {
    take(concat("decoder layer ", i, ", self-attention"), false, false);
    take(concat("decoder layer ", i, ", cross-attention"), false, true);
  }
  return page;
}

}  // namespace tapestry
