#include "apps/tasks/answers/trained_model.h"

#include <optional>
#include <utility>

#include "apps/checkpoint/run_folder.h"
#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/text_generator.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/long_line.h"
#include "data/corpora/empty_text.h"

namespace tapestry {
namespace {

AnsweredText answered(std::string text, const Hypothesis& found) {
  return {std::move(text), found.log_probability, found.score, found.has_eos && !found.cut};
}

std::vector<std::string> best_of(const std::vector<std::vector<AnsweredText>>& answers) {
  std::vector<std::string> texts;
  texts.reserve(answers.size());
  for (const auto& list : answers) texts.push_back(list.empty() ? "" : list.front().text);
  return texts;
}

SearchOptions with_one_answer(SearchOptions options) {
  options.n_best = 1;
  return options;
}

}  // namespace

struct TrainedModel::Members {
  Options options;
  Config config;
  std::optional<Translator> pairs;  // one of the two
  std::optional<TextModels> texts;

  const Translator& translator(const char* what) const {
    if (pairs) return *pairs;
    fail(ErrorKind::kConfig, '[', what, "] needs a model of task ", tasks_that_can(kTranslates),
         ", got ", config.task->name, '.');
  }
  const TextModels& text_models(const char* what) const {
    if (texts) return *texts;
    fail(ErrorKind::kConfig, '[', what, "] needs a model of task ", tasks_that_can(kContinuesText),
         ", got ", config.task->name, '.');
  }
};

TrainedModel::TrainedModel(const std::string& path) : TrainedModel(path, Options()) {}

TrainedModel::TrainedModel(const std::string& path, Options options)
    : members_(std::make_unique<Members>()) {
  Checkpoint checkpoint(resolve_checkpoint(path));
  members_->config = config_of(checkpoint);
  const ModelChoice choice{.paths = {path}, .format = options.weights};
  if (can(kTranslates)) {
    members_->pairs.emplace(choice, options.device, "translate", kTranslates);
  } else if (can(kContinuesText)) {
    members_->texts.emplace(choice, options.device, "generate", kContinuesText);
  } else {
    fail(ErrorKind::kConfig, "[model] ", path, " must be of task ", tasks_that_can(kTranslates),
         " or ", tasks_that_can(kContinuesText), ", got ", config().task->name, '.');
  }
  members_->options = std::move(options);
}

TrainedModel::~TrainedModel() = default;
TrainedModel::TrainedModel(TrainedModel&&) noexcept = default;
TrainedModel& TrainedModel::operator=(TrainedModel&&) noexcept = default;

const Config& TrainedModel::config() const { return members_->config; }

std::vector<std::vector<AnsweredText>> TrainedModel::translate(
    const std::vector<std::string>& lines, SearchOptions options) const {
  const Translator& models = members_->translator("translate");
  const Tokenizer& target = *models.tokenizers().target;
  const int64_t n_best = options.n_best;
  options.validate();
  widen_for_distinct_texts(options);
  Sentences sentences{.rows = models.rows()};
  std::vector<size_t> places;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    std::vector<int32_t> ids = models.encode_source(lines[i], number + 1);
    if (is_empty_text(lines[i], ids)) continue;
    sentences.sources.push_back(std::move(ids));
    sentences.numbers.push_back(number);
    places.push_back(i);
  }
  std::vector<std::vector<AnsweredText>> answers(lines.size());
  const auto text_of = [&](const Hypothesis& found) { return translated_text(target, found); };
  tapestry::translate(models.models(), sentences, options, members_->options.batch_size,
                      [&](size_t sentence, std::vector<Hypothesis> found) {
                        for (const auto& one : best_texts(std::move(found), n_best, text_of)) {
                          answers[places[sentence]].push_back(answered(text_of(one), one));
                        }
                      });
  return answers;
}

std::vector<std::string> TrainedModel::translate(const std::vector<std::string>& lines) const {
  return best_of(translate(lines, with_one_answer(search())));
}

std::vector<std::vector<AnsweredText>> TrainedModel::generate(
    const std::vector<std::string>& texts, SearchOptions options,
    const std::vector<std::string>& stop) const {
  const TextModels& models = members_->text_models("generate");
  const TextGenerator generator(models, std::move(options), stop);
  std::vector<Prompt> prompts;
  std::vector<const Prompt*> asked;
  std::vector<size_t> places;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    prompts.push_back(generator.prompt(texts[i], place_of_line(number + 1), false));
    prompts.back().number = number;
    if (!prompts.back().blank) places.push_back(i);
  }
  for (const size_t i : places) asked.push_back(&prompts[i]);
  std::vector<std::vector<AnsweredText>> answers(texts.size());
  TextGenerator::Hooks hooks;
  hooks.done = [&](size_t i, const std::vector<Hypothesis>& found) {
    for (const Hypothesis& one : found) {
      answers[places[i]].push_back(answered(generator.text_of(*asked[i], one), one));
    }
  };
  generator.run(asked, members_->options.batch_size, hooks);
  return answers;
}

std::vector<std::string> TrainedModel::generate(const std::vector<std::string>& prompts) const {
  return best_of(generate(prompts, with_one_answer(search())));
}

std::vector<Score> TrainedModel::score(const std::vector<std::string>& texts) const {
  const TextModels& models = members_->text_models("score");
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back(ids_to_score(models, text, std::ssize(ids) + 1));
  }
  return score_texts(models, ids);
}

std::vector<Score> TrainedModel::score(const std::vector<std::string>& sources,
                                       const std::vector<std::string>& targets) const {
  const Translator& models = members_->translator("score");
  check(sources.size() == targets.size(), "score", "needs a target for each source, got ",
        sources.size(), " and ", targets.size(), '.');
  ParallelCorpus pairs;
  pairs.rows = models.rows();
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<int32_t> target = models.tokenizers().target->encode(targets[i]);
    const auto number = static_cast<int64_t>(i) + 1;
    cut_long_line(target, models.longest() - 1, place_of_line(number));
    pairs.source.push_back(models.encode_source(sources[i], number));
    pairs.target.push_back(target);
  }
  return tapestry::score(models.models(), pairs, members_->options.batch_size);
}

}  // namespace tapestry
