#include "nn/translate.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"

namespace tapestry {
namespace {

Device device_of(const EncoderDecoder::State& state) { return state.memory_lengths.device(); }
Device device_of(const RnnAttention::State& state) { return state.device(); }

// A model of source and target that decodes by start() and step().
template <class Model>
class ModelSteps : public NextToken {
 public:
  ModelSteps(const Model& model, const Tensor& source, const Tensor& lengths)
      : model_(model), state_(model.start(source, lengths)), sentences_(lengths.numel()) {}

  // One token per row: a translation starts from only bos.
  Tensor step(const std::vector<int32_t>& tokens) override {
    return model_.step(ids(tokens), state_);
  }

  void select(const std::vector<int32_t>& sentences, const std::vector<int32_t>& rows) override {
    const Tensor row_ids = ids(rows);
    if (static_cast<int64_t>(sentences.size()) == sentences_) {
      state_.select_rows(row_ids);  // no sentence has left: the memory stays
    } else {
      state_.select(ids(sentences), row_ids);
    }
    sentences_ = static_cast<int64_t>(sentences.size());
  }

 private:
  Tensor ids(const std::vector<int32_t>& values) const {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}, device_of(state_));
  }

  const Model& model_;
  typename Model::State state_;
  int64_t sentences_;
};

std::unique_ptr<NextToken> steps_of(const PairModel& model, const TranslationInput& input) {
  return std::visit(
      [&]<class Model>(const Model* m) -> std::unique_ptr<NextToken> {
        return std::make_unique<ModelSteps<Model>>(*m, input.source, input.lengths);
      },
      model);
}

const Vocabulary& vocabulary_of(const PairModel& model) {
  return std::visit([](const auto* m) -> const Vocabulary& { return m->vocabulary; }, model);
}

// The limit of generated tokens, with eos, of a source of `length` tokens.
int64_t length_limit(int64_t length, int64_t prefix, int64_t longest,
                     const SearchOptions& options) {
  if (prefix >= longest) {
    fail(ErrorKind::kData, "[translate] a prefix has ", prefix,
         " tokens, the model writes at most ", longest, " with eos.");
  }
  // In doubles: a large ratio leaves the limit to the model.
  const double limit = options.max_new_tokens > 0
                           ? static_cast<double>(options.max_new_tokens)
                           : std::ceil(options.max_length_ratio * static_cast<double>(length)) + 10;
  const auto most = static_cast<double>(longest);
  return std::max(static_cast<int64_t>(std::min(limit, most)), prefix + 1);
}

// Row b of (B, S) ids up to its length, without eos.
std::vector<int32_t> words_of(const std::vector<int32_t>& ids, int64_t row, int64_t width,
                              int32_t length, int32_t eos) {
  const auto first = ids.begin() + static_cast<std::ptrdiff_t>(row * width);
  std::vector<int32_t> words(first, first + length);
  std::erase(words, eos);
  return words;
}

}  // namespace

Device device_of(const PairModels& models) {
  return std::visit([](const auto* m) { return m->words.target.value().device(); },
                    models.models.at(0));
}

int64_t longest_sequence(const PairModels& models) {
  int64_t longest = ModelOptions::kEndless;
  for (const PairModel& model : models.models) {
    longest = std::visit(
        [&](const auto* m) { return std::min(longest, m->options.longest_sequence()); }, model);
  }
  return longest;
}

std::vector<std::vector<Hypothesis>> translate(const PairModels& models,
                                               const TranslationInput& input,
                                               const SearchOptions& options) {
  options.validate();
  check(!models.models.empty(), "translate", "expected a model, got none.");
  SearchTask task;
  task.sentences = input.source.shape()[0];
  task.bos_id = input.ids.start;
  task.eos_id = input.ids.eos;
  task.banned = input.ids.banned;
  task.sequence_ids = input.sequence_ids;
  task.prefixes = input.prefixes;
  task.token_log_probabilities = input.token_log_probabilities;
  const int64_t longest = longest_sequence(models), width = input.source.shape()[1];
  const std::vector<int32_t> lengths = input.lengths.to_vector<int32_t>();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t prefix = input.prefixes.empty() ? 0 : std::ssize(input.prefixes.at(i));
    task.max_lengths.push_back(length_limit(lengths[i], prefix, longest, options));
  }
  if (options.repetition_penalty != 1 && vocabulary_of(models.models[0]).shared) {
    const std::vector<int32_t> ids = input.source.to_vector<int32_t>();
    for (size_t i = 0; i < lengths.size(); ++i) {
      task.sources.push_back(
          words_of(ids, static_cast<int64_t>(i), width, lengths[i], input.ids.eos));
    }
  }
  std::vector<std::unique_ptr<NextToken>> members;
  members.reserve(models.models.size());
  for (const PairModel& model : models.models) members.push_back(steps_of(model, input));
  return search(*ensemble_of(std::move(members), models.weights), task, options);
}

Var pair_logits(const PairModel& model, const PairInput& input) {
  return std::visit(
      [&](const auto* m) {
        const Var memory = m->encode(input.source, input.lengths);
        return m->logits(m->decode(input.target_in, memory, input.lengths));
      },
      model);
}

Tensor source_attention(const PairModel& model, const PairInput& input, int64_t layer) {
  // Each layer of the decoder records its self-attention, then its cross-attention.
  const auto* transformer = std::get_if<const EncoderDecoder*>(&model);
  const int64_t layers = transformer ? (*transformer)->options.decoder_layers : 1;
  if (layer < 0 || layer > layers) {
    fail(ErrorKind::kConfig, "[attention] expected a layer of the decoder in [1, ", layers,
         "], got ", layer, '.');
  }
  if (layer == 0) layer = std::max<int64_t>(1, layers - 1);
  return std::visit(
      [&](const auto* m) {
        const Var memory = m->encode(input.source, input.lengths);
        AttentionRecorder recorder;
        m->decode(input.target_in, memory, input.lengths);
        const int64_t index = transformer ? 2 * layer - 1 : 0;
        const Tensor& weights = recorder.weights().at(static_cast<size_t>(index));
        return mean(Var(weights.to(Device{}).to(DType::kFloat64)), 1).value();
      },
      model);
}

}  // namespace tapestry
