#include "nn/models/translate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "nn/decoding/chosen_words.h"

namespace tapestry {
namespace {

// The rows of an input in host memory, each as long as its sentence.
std::vector<std::vector<int32_t>> rows_of(const TranslationInput& input) {
  const std::vector<int32_t> ids = input.source.to_vector<int32_t>();
  const std::vector<int32_t> lengths = input.lengths.to_vector<int32_t>();
  const int64_t width = input.source.shape()[1];
  std::vector<std::vector<int32_t>> rows;
  rows.reserve(lengths.size());
  for (const int32_t length : lengths) {
    const auto first = ids.begin() + std::ssize(rows) * width;
    rows.emplace_back(first, first + length);
  }
  return rows;
}

// A model of source and target that decodes by add() and step(). A translation starts from only
// bos, so it reads no prompt.
template <class Model>
class ModelSteps : public NextToken {
 public:
  ModelSteps(const Model& model, const SourceRows& sources) : model_(model), sources_(sources) {
    if (sources.chosen != nullptr && !sources.chosen->empty()) {
      chosen_.emplace(model.words.output, *sources.chosen);
    }
  }

  void add(const std::vector<NewSentence>& sentences) override {
    std::vector<int32_t> lengths;
    int64_t width = 1;
    for (const NewSentence& s : sentences) {
      lengths.push_back(static_cast<int32_t>(row_of(s).size()));
      width = std::max<int64_t>(width, lengths.back());
    }
    const int64_t count = std::ssize(sentences);
    std::vector<int32_t> ids;
    ids.reserve(static_cast<size_t>(count * width));
    for (const NewSentence& s : sentences) {
      const std::vector<int32_t>& row = row_of(s);
      ids.insert(ids.end(), row.begin(), row.end());
      ids.insert(ids.end(), static_cast<size_t>(width - std::ssize(row)), sources_.filler);
    }
    if (chosen_) chosen_->add(indices_of(sentences));
    model_.add(Tensor::from(ids, {count, width}, sources_.device),
               Tensor::from(lengths, {count}, sources_.device), state_);
  }

  Tensor step(const std::vector<int32_t>& tokens) override {
    if (!chosen_) return model_.step(ids(tokens), state_);
    return chosen_->logits(model_.advance(ids(tokens), state_));
  }

  Tensor best(const std::vector<int32_t>& tokens, int64_t count,
              const std::vector<int32_t>& banned) override {
    if (!model_.words.output.has_best()) return {};
    const Var hidden = model_.advance(ids(tokens), state_);
    if (chosen_) return chosen_->best(hidden, count, banned);
    return model_.words.output.best(hidden, count, banned);
  }

  Tensor largest(const std::vector<int32_t>& tokens, const std::vector<int32_t>& banned) override {
    if (!model_.words.output.has_largest()) return {};
    const Var hidden = model_.advance(ids(tokens), state_);
    if (chosen_) return chosen_->largest(hidden, banned);
    return model_.words.output.largest(hidden, banned);
  }

  void select(const std::vector<int32_t>& rows) override {
    state_.select(rows);
    if (chosen_) chosen_->select(rows);
  }

 private:
  static std::vector<int64_t> indices_of(const std::vector<NewSentence>& sentences) {
    std::vector<int64_t> indices;
    for (const NewSentence& sentence : sentences) indices.push_back(sentence.index);
    return indices;
  }
  const std::vector<int32_t>& row_of(const NewSentence& sentence) const {
    return sources_.rows.at(static_cast<size_t>(sentence.index));
  }
  Tensor ids(const std::vector<int32_t>& tokens) const {
    return Tensor::from(tokens, {std::ssize(tokens)}, sources_.device);
  }

  const Model& model_;
  const SourceRows& sources_;
  typename Model::State state_;
  std::optional<ChosenWords> chosen_;
};

std::unique_ptr<NextToken> steps_of(const PairModel& model, const SourceRows& sources) {
  return std::visit(
      [&]<class Model>(const Model* m) -> std::unique_ptr<NextToken> {
        return std::make_unique<ModelSteps<Model>>(*m, sources);
      },
      model);
}

const Vocabulary& vocabulary_of(const PairModel& model) {
  return std::visit([](const auto* m) -> const Vocabulary& { return m->vocabulary; }, model);
}

}  // namespace

int64_t length_limit(int64_t length, int64_t prefix, const Phrases& constraints, int64_t longest,
                     const SearchOptions& options) {
  if (prefix >= longest) {
    fail(ErrorKind::kData, "[translate] a prefix has ", prefix,
         " tokens, the model writes at most ", longest, " with eos.");
  }
  const int64_t limit = std::max(std::min(translation_limit(length, options), longest), prefix + 1);
  return std::max(limit, std::min(longest, limit + constraint_tokens(constraints)));
}

std::vector<int32_t> penalised_words(const PairModels& models, std::vector<int32_t> source,
                                     int32_t eos, const SearchOptions& options) {
  if (options.repetition_penalty == 1 || !vocabulary_of(models.models[0]).shared) return {};
  std::erase(source, eos);
  return source;
}

std::unique_ptr<NextToken> translation_steps(const PairModels& models, const SourceRows& sources) {
  std::vector<std::unique_ptr<NextToken>> members;
  members.reserve(models.models.size());
  for (const PairModel& model : models.models) members.push_back(steps_of(model, sources));
  return ensemble_of(std::move(members), models.weights);
}

int64_t translation_limit(int64_t source_tokens, const SearchOptions& options) {
  if (options.max_new_tokens > 0) return options.max_new_tokens;
  constexpr int64_t kMore = 10;  // for short texts, about which the ratio says little
  const double most = std::ceil(options.max_length_ratio * static_cast<double>(source_tokens));
  return static_cast<int64_t>(most) + kMore;
}

Device device_of(const PairModels& models) {
  return std::visit([](const auto* m) { return m->words.target.device(); }, models.models.at(0));
}

int64_t longest_sequence(const PairModels& models) {
  int64_t longest = ModelOptions::kEndless;
  for (const PairModel& model : models.models) {
    longest = std::visit(
        [&](const auto* m) { return std::min(longest, m->options.longest_sequence()); }, model);
  }
  return longest;
}

void translate(const PairModels& models, const TranslationInput& input,
               const SearchOptions& options, const TranslationDone& done) {
  options.validate();
  check(!models.models.empty(), "translate", "expected a model, got none.");
  const SourceRows sources{
      .rows = rows_of(input), .device = input.source.device(), .chosen = &input.chosen};
  SearchTask task;
  task.sentences = input.source.shape()[0];
  task.sentences_at_once = input.sentences_at_once;
  task.bos_id = input.ids.start;
  task.eos_id = input.ids.eos;
  task.more_ends = input.ids.more_ends;
  task.banned = input.ids.banned;
  task.sequence_ids = input.sequence_ids;
  task.prefixes = input.prefixes;
  task.chosen = input.chosen;
  task.constraints = input.constraints;
  task.edges = input.edges;
  task.log_probabilities = input.log_probabilities;
  task.token_log_probabilities = input.token_log_probabilities;
  const int64_t longest = longest_sequence(models);
  const bool penalised = options.repetition_penalty != 1 && vocabulary_of(models.models[0]).shared;
  for (size_t i = 0; i < sources.rows.size(); ++i) {
    const std::vector<int32_t>& row = sources.rows[i];
    const int64_t prefix = input.prefixes.empty() ? 0 : std::ssize(input.prefixes.at(i));
    const Phrases constraints = input.constraints.empty() ? Phrases() : input.constraints.at(i);
    task.max_lengths.push_back(
        length_limit(std::ssize(row), prefix, constraints, longest, options));
    if (penalised) {
      task.sources.push_back(penalised_words(models, row, input.ids.eos, options));
    }
  }
  const auto model = [&] { return translation_steps(models, sources); };
  search_together(model, task, options, {}, done, sources.device);
}

std::vector<std::vector<Hypothesis>> translate(const PairModels& models,
                                               const TranslationInput& input,
                                               const SearchOptions& options) {
  std::vector<std::vector<Hypothesis>> results(static_cast<size_t>(input.source.shape()[0]));
  translate(models, input, options, [&](int64_t sentence, std::vector<Hypothesis> hypotheses) {
    results[static_cast<size_t>(sentence)] = std::move(hypotheses);
  });
  return results;
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
  // Each layer of the decoder records its self-attention, if it has one, then its cross-attention.
  const auto* transformer = std::get_if<const EncoderDecoder*>(&model);
  const int64_t layers = transformer ? (*transformer)->options.decoder_layers : 1;
  if (layer < 0 || layer > layers) {
    fail(ErrorKind::kConfig, "[attention] expected a layer of the decoder in [1, ", layers,
         "], got ", layer, '.');
  }
  const auto* recurrent = std::get_if<const RnnAttention*>(&model);
  if (recurrent != nullptr && !(*recurrent)->options.attends) {
    fail(ErrorKind::kConfig,
         "[attention] expected a model that attends to the source, got one with model.attention: "
         "none.");
  }
  const int64_t guided = transformer ? (*transformer)->options.alignment_layer : 0;
  const bool first_head = layer == 0 && guided > 0;
  if (layer == 0) layer = guided > 0 ? guided : usual_alignment_layer(layers);
  return std::visit(
      [&](const auto* m) {
        const Var memory = m->encode(input.source, input.lengths);
        AttentionRecorder recorder;
        m->decode(input.target_in, memory, input.lengths);
        const bool attends = transformer && !(*transformer)->options.is_recurrent();
        const int64_t index = transformer ? (attends ? 2 * layer - 1 : layer - 1) : 0;
        const Tensor& weights = recorder.maps().at(static_cast<size_t>(index)).weights;
        const Var all(weights.to(Device{}).to(DType::kFloat64));
        return mean(first_head ? slice(all, 1, 0, 1) : all, 1).value();
      },
      model);
}

}  // namespace tapestry
