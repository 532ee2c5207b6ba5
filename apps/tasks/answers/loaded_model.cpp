#include "apps/tasks/answers/loaded_model.h"

#include <utility>

#include "apps/checkpoint/run_folder.h"

namespace tapestry {
namespace {

constexpr Ability kAnswering[] = {kTranslates,   kContinuesText,  kFillsMasks,  kClassifies,
                                  kFindsClasses, kRatesTexts,     kLabelsWords, kEmbedsTexts,
                                  kFindsAnswers, kPredictsNumbers};

// What the model of a config is loaded for.
Ability ability_of(const Config& config, const std::string& path) {
  for (const Ability ability : kAnswering) {
    if (config.task->can(ability)) return ability;
  }
  fail(ErrorKind::kConfig, "[model] ", path, " is of task ", config.task->name,
       ", which answers nothing.");
}

}  // namespace

LoadedModel::LoadedModel(const std::string& path, TrainedModel::Options options_in)
    : options(std::move(options_in)) {
  Checkpoint checkpoint(resolve_checkpoint(path));
  config = config_of(checkpoint);
  load(path, ability_of(config, path));
}

void LoadedModel::load(const std::string& path, Ability ability) {
  const ModelChoice choice{.paths = {path}, .format = options.weights};
  const bool pairs_of_texts = traits_of(config.model_type).reads_two_texts;
  const auto read = [&](auto& model) {
    using Bundle = typename std::decay_t<decltype(model)>::element_type;
    model = Bundle::load(path, options.device, "model", ability, options.weights);
  };
  if (pairs_of_texts) {
    pairs =
        std::make_unique<Translator>(choice, options.device, "model", ability, options.languages);
    use_shortlist(config.generation);
  } else if (ability == kContinuesText) {
    texts = std::make_unique<TextModels>(choice, options.device, "model", ability);
  } else if (ability == kFillsMasks) {
    read(masked);
  } else if (ability == kLabelsWords) {
    read(word_labels);
    word_labels->config.training.eval_batch_size = options.batch_size;
  } else if (ability == kEmbedsTexts) {
    read(vectors);
  } else if (ability == kFindsAnswers) {
    read(spans);
  } else if (ability == kPredictsNumbers) {
    points = RegressionModel::load(read_model_files(path), options.device, "model");
  } else if (examples_of(config).of_images()) {
    read(image_classes);
  } else {
    read(text_classes);
  }
}

const TokenizerPair& LoadedModel::tokenizers() const {
  static const TokenizerPair kNone;
  return pairs          ? pairs->tokenizers()
         : texts        ? texts->first().tokenizers
         : masked       ? masked->tokenizers
         : text_classes ? text_classes->tokenizers
         : word_labels  ? word_labels->tokenizers
         : vectors      ? vectors->tokenizers
         : spans        ? spans->tokenizers
                        : kNone;
}

void LoadedModel::use_shortlist(const SearchOptions& search) {
  if (listed && listed->shortlist == search.shortlist &&
      listed->shortlist_size == search.shortlist_size) {
    return;
  }
  pairs->use_shortlist(search);
  listed = search;
}

}  // namespace tapestry
