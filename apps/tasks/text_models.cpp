#include "apps/tasks/text_models.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "apps/tasks/long_line.h"
#include "data/corpora/empty_text.h"
#include "nn/decoding/ensemble.h"

namespace tapestry {

bool begins_with_eos(const Config& config) { return config.data.train.at(0).documents != "file"; }

TextModels::TextModels(const ModelChoice& choice, const std::string& device, const std::string& who,
                       Ability ability)
    : weights(ensemble_weights(choice.weights, choice.paths.size())) {
  for (ModelFiles& files : read_model_files(choice.paths)) {
    const std::string folder = files.folder;
    members.push_back(TextModel::load(std::move(files), device, who, ability, choice.format));
    if (begins_with_eos(members.back()->config) != begins_with_eos(first().config)) {
      fail(ErrorKind::kData, '[', who, "] ", choice.paths[0], " and ", folder,
           " must both have learnt from one long document, or both from several.");
    }
  }
}

int64_t TextModels::positions() const {
  int64_t least = first().config.model.max_position_embeddings;
  for (const auto& model : members) {
    least = std::min(least, model->config.model.max_position_embeddings);
  }
  return least;
}

int64_t TextModels::longest() const {
  int64_t least = first().config.model.longest_sequence();
  for (const auto& model : members) {
    least = std::min(least, model->config.model.longest_sequence());
  }
  return least;
}

bool TextModels::reads_prefixes() const {
  return std::ranges::any_of(members,
                             [](const auto& model) { return model->config.model.prefix_lm; });
}

std::unique_ptr<NextToken> TextModels::steps() const {
  std::vector<std::unique_ptr<NextToken>> each;
  each.reserve(members.size());
  for (const auto& model : members) {
    each.push_back(std::make_unique<LanguageModelSteps>(model->model));
  }
  return ensemble_of(std::move(each), weights);
}

std::vector<const Trunk*> TextModels::trunks() const {
  std::vector<const Trunk*> all;
  all.reserve(members.size());
  for (const auto& model : members) all.push_back(&model->model.trunk);
  return all;
}

std::vector<int32_t> ids_to_score(const TextModels& models, const std::string& line,
                                  int64_t number) {
  std::vector<int32_t> ids = models.tokenizer().encode(line);
  if (is_empty_text(line, ids)) ids.clear();
  if (begins_with_eos(models.first().config)) {
    const SpecialIds& special = models.tokenizer().special();
    const bool ends = special.has_end(ids);
    const std::vector<int32_t> begin = special.beginning_of(ids);
    ids.insert(ids.begin(), begin.begin(), begin.end());
    if (!ends) ids.push_back(special.eos);
  }
  // The last one is only predicted.
  const int64_t longest = models.longest();
  if (std::ssize(ids) - 1 > longest) cut_long_line(ids, longest + 1, place_of_line(number));
  return ids;
}

std::vector<Score> score_texts(const TextModels& models,
                               const std::vector<std::vector<int32_t>>& texts) {
  std::vector<Score> scores;
  for (const std::vector<int32_t>& ids : texts) {
    const auto count = static_cast<int64_t>(ids.size()) - 1;
    Score score{.tokens = std::max<int64_t>(0, count)};
    if (count > 0) {
      const Tensor in = Tensor::from(std::vector(ids.begin(), ids.end() - 1), {1, count});
      const Tensor out = Tensor::from(std::vector(ids.begin() + 1, ids.end()), {1, count});
      std::vector<std::vector<double>> each;
      for (const auto& model : models.members) {
        const Var hidden = model->model.hidden(in.to(model->device()));
        each.push_back(target_log_probabilities(model->model.logits(hidden), out));
      }
      score.ids.assign(ids.begin() + 1, ids.end());
      score.each = mean_log_probabilities(each, models.weights);
      score.log_probability = std::accumulate(score.each.begin(), score.each.end(), 0.0);
    }
    scores.push_back(score);
  }
  return scores;
}

std::vector<std::vector<Fill>> fill_masks(const TextModel& model, const std::vector<int32_t>& ids,
                                          int64_t top_k) {
  const auto count = static_cast<int64_t>(ids.size());
  const Var hidden = model.model.hidden(Tensor::from(ids, {1, count}).to(model.device()));
  const Tensor probabilities =
      softmax(model.model.logits(hidden)).value().to(Device{}).to(DType::kFloat64);
  const int64_t vocab = probabilities.shape()[2];
  std::vector<std::vector<Fill>> fills;
  for (int64_t t = 0; t < count; ++t) {
    if (ids[static_cast<size_t>(t)] != *model.tokenizers.source->mask_id()) continue;
    const double* const row = probabilities.data<double>() + t * vocab;
    std::vector<Fill> guesses;
    for (int32_t id = 0; id < vocab; ++id) guesses.push_back({id, row[id]});
    std::stable_sort(guesses.begin(), guesses.end(),
                     [](const Fill& a, const Fill& b) { return a.probability > b.probability; });
    guesses.resize(static_cast<size_t>(std::min(top_k, vocab)));
    fills.push_back(std::move(guesses));
  }
  return fills;
}

}  // namespace tapestry
