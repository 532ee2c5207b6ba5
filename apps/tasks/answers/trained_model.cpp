#include "apps/tasks/answers/trained_model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "apps/checkpoint/run_folder.h"
#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/least_risk.h"
#include "apps/tasks/answers/text_generator.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/embedding.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/prompts/chat_answers.h"
#include "core/base/interruption.h"
#include "data/corpora/empty_text.h"
#include "data/files/utf8.h"

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

constexpr Ability kAnswering[] = {kTranslates,   kContinuesText, kFillsMasks,  kClassifies,
                                  kFindsClasses, kRatesTexts,    kLabelsWords, kEmbedsTexts};

// What the model of a config is loaded for.
Ability ability_of(const Config& config, const std::string& path) {
  std::string tasks;
  for (const Ability ability : kAnswering) {
    if (config.task->can(ability)) return ability;
    tasks += concat(tasks.empty() ? "" : ", ", tasks_that_can(ability));
  }
  fail(ErrorKind::kConfig, "[model] ", path, " must be of task ", tasks, ", got ",
       config.task->name, '.');
}

// The model of a config that `who` needs, if it was loaded and has the ability.
template <class Model>
const Model& needed(const std::unique_ptr<Model>& model, const char* who, Ability ability,
                    const Config& config) {
  if (model && config.task->can(ability)) return *model;
  fail(ErrorKind::kConfig, '[', who, "] needs a model of task ", tasks_that_can(ability), ", got ",
       config.task->name, '.');
}

}  // namespace

struct TrainedModel::Members {
  Options options;
  Config config;
  // One of these.
  std::unique_ptr<Translator> pairs;
  std::unique_ptr<TextModels> texts;
  std::unique_ptr<TextModel> masked;
  std::unique_ptr<TextClassifier> text_classes;
  std::unique_ptr<ImageModel> image_classes;
  std::unique_ptr<TokenClassifierModel> word_labels;
  std::unique_ptr<EmbeddingModel> vectors;
  std::optional<SearchOptions> listed;  // whose shortlist is in use

  void load(const std::string& path, Ability ability) {
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
    } else if (examples_of(config).of_images()) {
      read(image_classes);
    } else {
      read(text_classes);
    }
  }

  // Reads the file of a shortlist only where it is another one than before.
  void use_shortlist(const SearchOptions& search) {
    if (listed && listed->shortlist == search.shortlist &&
        listed->shortlist_size == search.shortlist_size) {
      return;
    }
    pairs->use_shortlist(search);
    listed = search;
  }

  const Translator& translator(const char* who, Ability ability = kTranslates) const {
    return needed(pairs, who, ability, config);
  }
  const TextModels& text_models(const char* who) const {
    return needed(texts, who, kContinuesText, config);
  }

  // Calls f(begin, end) for the lines that are searched, or that the model reads, together.
  template <class F>
  static void in_parts(size_t lines, int64_t most, F f) {
    const auto part = static_cast<size_t>(most);
    for (size_t begin = 0; begin < lines; begin += part) {
      stop_if_asked();
      f(begin, std::min(begin + part, lines));
    }
  }
  template <class F>
  void in_batches(size_t lines, F f) const {
    in_parts(lines, options.batch_size, f);
  }
  template <class F>
  void in_windows(size_t lines, F f) const {
    in_parts(lines, window_of(options.batch_size), f);
  }
};

TrainedModel::TrainedModel(const std::string& path) : TrainedModel(path, Options()) {}

TrainedModel::TrainedModel(const std::string& path, Options options)
    : members_(std::make_unique<Members>()) {
  Checkpoint checkpoint(resolve_checkpoint(path));
  members_->config = config_of(checkpoint);
  members_->options = std::move(options);
  members_->load(path, ability_of(config(), path));
}

TrainedModel::~TrainedModel() = default;
TrainedModel::TrainedModel(TrainedModel&&) noexcept = default;
TrainedModel& TrainedModel::operator=(TrainedModel&&) noexcept = default;

const Config& TrainedModel::config() const { return members_->config; }

const TokenizerPair& TrainedModel::tokenizers() const {
  static const TokenizerPair kNone;
  const Members& all = *members_;
  return all.pairs          ? all.pairs->tokenizers()
         : all.texts        ? all.texts->first().tokenizers
         : all.masked       ? all.masked->tokenizers
         : all.text_classes ? all.text_classes->tokenizers
         : all.word_labels  ? all.word_labels->tokenizers
         : all.vectors      ? all.vectors->tokenizers
                            : kNone;
}

std::vector<std::vector<AnsweredText>> TrainedModel::translate(
    const std::vector<std::string>& lines, SearchOptions options, bool with_scores) const {
  const Translator& models = members_->translator("translate");
  const Tokenizer& target = *models.tokenizers().target;
  const int64_t n_best = options.n_best;
  options.validate();
  members_->use_shortlist(options);
  widen_for_distinct_texts(options);
  std::vector<std::vector<AnsweredText>> answers(lines.size());
  members_->in_windows(lines.size(), [&](size_t begin, size_t end) {
    Sentences sentences{.rows = models.rows(), .log_probabilities = with_scores};
    std::vector<size_t> places;
    for (size_t i = begin; i < end; ++i) {
      const auto number = static_cast<int64_t>(i);
      std::vector<int32_t> ids = models.encode_source(lines[i], number + 1);
      if (is_empty_text(lines[i], ids)) continue;
      sentences.sources.push_back(std::move(ids));
      sentences.numbers.push_back(number);
      models.choose_words(sentences);
      places.push_back(i);
    }
    const auto done = [&](size_t sentence, std::vector<Hypothesis> found) {
      for (const Hypothesis& one : best_translations(std::move(found), n_best, options, target)) {
        answers[places[sentence]].push_back(answered(translated_text(target, one), one));
      }
    };
    tapestry::translate(models.models(), sentences, drawing_options(options),
                        members_->options.batch_size, done);
  });
  return answers;
}

std::vector<std::string> TrainedModel::translate(const std::vector<std::string>& lines) const {
  return best_of(translate(lines, with_one_answer(search()), /*with_scores=*/false));
}

std::vector<std::vector<AnsweredText>> TrainedModel::generate(
    const std::vector<std::string>& texts, SearchOptions options,
    const std::vector<std::string>& stop) const {
  const TextModels& models = members_->text_models("generate");
  // A model that was trained on talks reads all texts as those.
  const bool talks = examples_of(models.first().config).talks;
  const TextGenerator generator(models, std::move(options), stop,
                                talks ? chat_answers(models).reader : nullptr);
  std::vector<std::vector<AnsweredText>> answers(texts.size());
  members_->in_windows(texts.size(), [&](size_t begin, size_t end) {
    std::vector<Prompt> prompts;
    std::vector<const Prompt*> asked;
    for (size_t i = begin; i < end; ++i) {
      const auto number = static_cast<int64_t>(i);
      prompts.push_back(generator.prompt(texts[i], place_of_line(number + 1), false));
      prompts.back().number = number;
    }
    for (const Prompt& prompt : prompts) {
      if (!prompt.blank) asked.push_back(&prompt);
    }
    TextGenerator::Hooks hooks;
    hooks.done = [&](size_t i, const std::vector<Hypothesis>& found) {
      stop_if_asked();
      for (const Hypothesis& one : found) {
        answers[static_cast<size_t>(asked[i]->number)].push_back(
            answered(generator.text_of(*asked[i], one), one));
      }
    };
    generator.run(asked, members_->options.batch_size, hooks);
  });
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
  const Translator& models = members_->translator("score", kScoresPairs);
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

Tensor TrainedModel::embed(const std::vector<std::string>& texts) const {
  const EmbeddingModel& model = needed(members_->vectors, "embed", kEmbedsTexts, config());
  const int64_t size = model.config.model.hidden_size;
  const Tensor vectors = Tensor::empty({std::ssize(texts), size});
  members_->in_batches(texts.size(), [&](size_t begin, size_t end) {
    std::vector<FramedText> ids;
    for (size_t i = begin; i < end; ++i) {
      const auto number = static_cast<int64_t>(i) + 1;
      ids.push_back(encoder_input(model.config, *model.tokenizers.source, texts[i], number));
      if (!ids.back().empty()) continue;
      fail(ErrorKind::kData, "[embed] ", place_of_line(number),
           " is empty: it has no vector, and an array has a row for each line.");
    }
    vectors.slice(static_cast<int64_t>(begin), static_cast<int64_t>(end))
        .copy_from(tapestry::embed(model, ids).to(DType::kFloat32));
  });
  return vectors;
}

namespace {

// Calls f(rows, places) with the rows of texts [begin, end) that are not empty, and their places.
template <class F>
void with_rows(const TextClassifier& model, const std::vector<std::string>& texts,
               const std::vector<std::string>& seconds, size_t begin, size_t end, F f) {
  std::vector<FramedText> rows;
  std::vector<size_t> places;
  for (size_t i = begin; i < end; ++i) {
    FramedText row = encoder_input(model.config, *model.tokenizers.source, texts, seconds, i);
    if (row.empty()) continue;
    rows.push_back(std::move(row));
    places.push_back(i);
  }
  if (!rows.empty()) f(rows, places);
}

}  // namespace

std::vector<double> TrainedModel::rate(const std::vector<std::string>& texts,
                                       const std::vector<std::string>& seconds) const {
  const TextClassifier& model = needed(members_->text_classes, "rate", kRatesTexts, config());
  check_second_texts("rate", model.config, texts, seconds);
  std::vector<double> numbers(texts.size(), std::numeric_limits<double>::quiet_NaN());
  members_->in_batches(texts.size(), [&](size_t begin, size_t end) {
    with_rows(model, texts, seconds, begin, end, [&](const auto& rows, const auto& places) {
      const std::vector<double> found = rate_texts(model, rows);
      for (size_t i = 0; i < places.size(); ++i) numbers[places[i]] = found[i];
    });
  });
  return numbers;
}

std::vector<std::vector<LabelProbability>> TrainedModel::classify(
    const std::vector<std::string>& texts, const ClassChoice& choice,
    const std::vector<std::string>& seconds) const {
  const bool several = can(kFindsClasses);
  const std::vector<std::string>& labels = config().data.labels;
  std::vector<std::vector<LabelProbability>> classes(texts.size());
  if (members_->image_classes) {
    for (size_t i = 0; i < texts.size(); ++i) {
      stop_if_asked();
      if (is_blank(texts[i])) continue;
      const ClassProbabilities found = tapestry::classify(*members_->image_classes, texts[i]);
      classes[i] = chosen_classes(labels, found, choice, several);
    }
    return classes;
  }
  constexpr auto kOfTexts = static_cast<Ability>(kClassifies | kFindsClasses);
  const TextClassifier& model = needed(members_->text_classes, "classify", kOfTexts, config());
  check_second_texts("classify", model.config, texts, seconds);
  members_->in_batches(texts.size(), [&](size_t begin, size_t end) {
    with_rows(model, texts, seconds, begin, end, [&](const auto& rows, const auto& places) {
      const auto found =
          several ? class_probabilities(model, rows) : tapestry::classify(model, rows);
      for (size_t i = 0; i < places.size(); ++i) {
        classes[places[i]] = chosen_classes(labels, found[i], choice, several);
      }
    });
  });
  return classes;
}

std::vector<std::pair<TextInWords, std::vector<WordLabel>>> TrainedModel::label_words(
    const std::vector<std::string>& texts) const {
  const auto& model = needed(members_->word_labels, "label_words", kLabelsWords, config());
  std::vector<std::pair<TextInWords, std::vector<WordLabel>>> all;
  std::vector<std::vector<std::string>> sentences;
  for (const std::string& text : texts) {
    all.push_back({in_words(text), {}});
    if (!all.back().first.words.empty()) sentences.push_back(all.back().first.words);
  }
  const TaggedCorpus corpus =
      encode_words(sentences, *model.tokenizers.source, model.config.data.corpus.max_length);
  auto found = tapestry::label_words(model, corpus);
  size_t next = 0;
  for (auto& [text, labels] : all) {
    if (!text.words.empty()) labels = std::move(found[next++]);
  }
  return all;
}

std::vector<std::vector<std::vector<WordGuess>>> TrainedModel::guess_words(
    const std::vector<std::string>& lines, int64_t top_k) const {
  if (members_->pairs && can(kFillsMasks)) {
    fail(ErrorKind::kConfig, "[fill_mask] guesses words with a masked model; one of task ",
         config().task->name, " restores lines.");
  }
  const TextModel& model = needed(members_->masked, "fill_mask", kFillsMasks, config());
  check(top_k >= 1, "fill_mask", "expected 1 <= top_k, got ", top_k, '.');
  const MaskGuesser guesser(model);
  std::vector<std::vector<std::vector<WordGuess>>> guesses(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    stop_if_asked();
    const std::vector<int32_t> ids = guesser.encode(lines[i]);
    if (ids.empty()) continue;
    guesses[i] = guesser.guess(guesser.framed(ids, static_cast<int64_t>(i) + 1), top_k);
  }
  return guesses;
}

std::vector<std::string> TrainedModel::restore(const std::vector<std::string>& lines,
                                               const SearchOptions& options) const {
  if (!can(kFillsMasks)) {
    fail(ErrorKind::kConfig, "[fill_mask] needs a model of task ", tasks_that_can(kFillsMasks),
         ", got ", config().task->name, '.');
  }
  const Translator& models = members_->translator("fill_mask", kFillsMasks);
  options.validate();
  const TextRestorer restorer(models);
  Sentences sentences{.rows = models.rows()};
  std::vector<size_t> places;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids = models.encode_source(lines[i], static_cast<int64_t>(i) + 1);
    if (is_empty_text(lines[i], ids)) continue;
    sentences.sources.push_back(restorer.source(std::move(ids)));
    places.push_back(i);
  }
  const auto found =
      tapestry::translate(models.models(), sentences, options, members_->options.batch_size);
  std::vector<std::string> texts(lines.size());
  for (size_t i = 0; i < places.size(); ++i) {
    texts[places[i]] = restorer.text(sentences.sources[i], found[i].at(0).tokens);
  }
  return texts;
}

}  // namespace tapestry
