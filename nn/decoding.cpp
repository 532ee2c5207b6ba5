#include "nn/decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "nn/rnn_attention.h"

namespace tapestry {
namespace {

template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) fail(ErrorKind::kConfig, "[search] expected ", parts..., '.');
}

}  // namespace

void SearchOptions::validate() const {
  // NaN fails each of these.
  require(num_beams >= 1 && n_best >= 1 && n_best <= num_beams,
          "1 <= n_best <= num_beams, got n_best ", n_best, " and num_beams ", num_beams);
  require(!do_sample || num_beams == 1, "num_beams 1 with do_sample, got ", num_beams);
  require(std::isfinite(length_penalty), "a finite length_penalty, got ", length_penalty);
  require(max_length_ratio > 0 && std::isfinite(max_length_ratio), "max_length_ratio > 0, got ",
          max_length_ratio);
  require(temperature > 0 && std::isfinite(temperature),
          "temperature > 0 (without do_sample the search is greedy), got ", temperature);
  require(top_k >= 0, "top_k >= 0, got ", top_k);
  require(top_p > 0 && top_p <= 1, "0 < top_p <= 1, got ", top_p);
  require(std::isfinite(frequency_penalty), "a finite frequency_penalty, got ", frequency_penalty);
  require(std::isfinite(presence_penalty), "a finite presence_penalty, got ", presence_penalty);
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty),
          "repetition_penalty > 0, got ", repetition_penalty);
  require(no_repeat_ngram_size >= 0, "no_repeat_ngram_size >= 0, got ", no_repeat_ngram_size);
  require(min_new_tokens >= 0 && max_new_tokens >= 0,
          "min_new_tokens and max_new_tokens >= 0, got ", min_new_tokens, " and ", max_new_tokens);
  require(max_new_tokens == 0 || min_new_tokens <= max_new_tokens,
          "min_new_tokens <= max_new_tokens, got ", min_new_tokens, " and ", max_new_tokens);
}

LengthPenalty parse_length_penalty(const std::string& name) {
  if (name == "none") return LengthPenalty::kNone;
  if (name == "average") return LengthPenalty::kAverage;
  if (name == "gnmt") return LengthPenalty::kGnmt;
  fail(ErrorKind::kConfig, "[beam_search] length_penalty_type is none, average or gnmt, got '",
       name, "'.");
}

double normalized_score(double log_probability, int64_t length, const SearchOptions& options) {
  const auto t = static_cast<double>(length);
  switch (options.length_penalty_type) {
    case LengthPenalty::kNone:
      return log_probability;
    case LengthPenalty::kAverage:
      return log_probability / std::pow(t, options.length_penalty);
    case LengthPenalty::kGnmt:
      return log_probability / std::pow((5 + t) / 6, options.length_penalty);
  }
  return log_probability;
}

std::vector<std::vector<Hypothesis>> search(NextToken& model, const SearchTask& task,
                                            const SearchOptions& options) {
  if (options.num_beams > 1) return beam_search(model, task, options);
  std::vector<std::vector<Hypothesis>> results;
  for (Hypothesis& hypothesis : generate(model, task, options)) {
    results.push_back({std::move(hypothesis)});
  }
  return results;
}

int64_t generation_limit(int64_t prompt_tokens, int64_t max_positions,
                         const SearchOptions& options) {
  if (prompt_tokens > max_positions) {
    fail(ErrorKind::kData, "[search] the prompt has ", prompt_tokens,
         " tokens, the model has positions for ", max_positions, '.');
  }
  const int64_t room = max_positions - prompt_tokens + 1;
  return options.max_new_tokens > 0 ? std::min(options.max_new_tokens, room) : room;
}

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

// `max_positions`: the limit of tokens that the decoder can read.
template <class Model>
std::vector<std::vector<Hypothesis>> translate_with(
    const Model& model, const Tensor& source, const Tensor& source_lengths, const SpecialIds& ids,
    const SearchOptions& options, const std::vector<int64_t>& sequence_ids, int64_t max_positions) {
  options.validate();
  SearchTask task;
  task.sentences = source.shape()[0];
  task.bos_id = ids.bos;
  task.eos_id = ids.eos;
  task.banned = {ids.pad, ids.unk, ids.bos};
  task.sequence_ids = sequence_ids;
  for (const int32_t length : source_lengths.to_vector<int32_t>()) {
    const int64_t limit =
        options.max_new_tokens > 0
            ? options.max_new_tokens
            : static_cast<int64_t>(std::ceil(options.max_length_ratio * length)) + 10;
    task.max_lengths.push_back(std::min(limit, max_positions));
  }
  ModelSteps<Model> steps(model, source, source_lengths);
  return search(steps, task, options);
}

}  // namespace

std::vector<std::vector<Hypothesis>> translate(const EncoderDecoder& model, const Tensor& source,
                                               const Tensor& source_lengths, const SpecialIds& ids,
                                               const SearchOptions& options,
                                               const std::vector<int64_t>& sequence_ids) {
  return translate_with(model, source, source_lengths, ids, options, sequence_ids,
                        model.options.max_position_embeddings);
}

std::vector<std::vector<Hypothesis>> translate(const RnnAttention& model, const Tensor& source,
                                               const Tensor& source_lengths, const SpecialIds& ids,
                                               const SearchOptions& options,
                                               const std::vector<int64_t>& sequence_ids) {
  return translate_with(model, source, source_lengths, ids, options, sequence_ids,
                        std::numeric_limits<int64_t>::max());
}

}  // namespace tapestry
