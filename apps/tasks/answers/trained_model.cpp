#include "apps/tasks/answers/trained_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/least_risk.h"
#include "apps/tasks/answers/loaded_model.h"
#include "apps/tasks/answers/text_generator.h"
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

}  // namespace

TrainedModel::TrainedModel(const std::string& path) : TrainedModel(path, Options()) {}

TrainedModel::TrainedModel(const std::string& path, Options options)
    : loaded_(std::make_unique<LoadedModel>(path, std::move(options))) {}

TrainedModel::~TrainedModel() = default;
TrainedModel::TrainedModel(TrainedModel&&) noexcept = default;
TrainedModel& TrainedModel::operator=(TrainedModel&&) noexcept = default;

const Config& TrainedModel::config() const { return loaded_->config; }

const TokenizerPair& TrainedModel::tokenizers() const { return loaded_->tokenizers(); }

std::vector<std::vector<AnsweredText>> TrainedModel::translate(
    const std::vector<std::string>& lines, SearchOptions options, bool with_scores) const {
  const Translator& models = loaded_->translator("translate");
  const Tokenizer& target = *models.tokenizers().target;
  const int64_t n_best = options.n_best;
  options.validate();
  loaded_->use_shortlist(options);
  widen_for_distinct_texts(options);
  std::vector<std::vector<AnsweredText>> answers(lines.size());
  loaded_->in_windows(lines.size(), [&](size_t begin, size_t end) {
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
                        loaded_->options.batch_size, done);
  });
  return answers;
}

std::vector<std::string> TrainedModel::translate(const std::vector<std::string>& lines) const {
  return best_of(translate(lines, with_one_answer(search()), /*with_scores=*/false));
}

std::vector<std::vector<AnsweredText>> TrainedModel::generate(
    const std::vector<std::string>& texts, SearchOptions options,
    const std::vector<std::string>& stop) const {
  const TextModels& models = loaded_->text_models("generate");
  // A model that was trained on talks reads all texts as those.
  const bool talks = examples_of(models.first().config).talks;
  const TextGenerator generator(models, std::move(options), stop,
                                talks ? chat_answers(models).reader : nullptr);
  std::vector<std::vector<AnsweredText>> answers(texts.size());
  loaded_->in_windows(texts.size(), [&](size_t begin, size_t end) {
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
    generator.run(asked, loaded_->options.batch_size, hooks);
  });
  return answers;
}

std::vector<std::string> TrainedModel::generate(const std::vector<std::string>& prompts) const {
  return best_of(generate(prompts, with_one_answer(search())));
}

std::vector<Score> TrainedModel::score(const std::vector<std::string>& texts) const {
  const TextModels& models = loaded_->text_models("score");
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back(ids_to_score(models, text, std::ssize(ids) + 1));
  }
  return score_texts(models, ids);
}

std::vector<Score> TrainedModel::score(const std::vector<std::string>& sources,
                                       const std::vector<std::string>& targets) const {
  const Translator& models = loaded_->translator("score", kScoresPairs);
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
  return tapestry::score(models.models(), pairs, loaded_->options.batch_size);
}

Tensor TrainedModel::embed(const std::vector<std::string>& texts) const {
  const EmbeddingModel& model = needed(loaded_->vectors, "embed", kEmbedsTexts, config());
  const int64_t size = model.config.model.hidden_size;
  const Tensor vectors = Tensor::empty({std::ssize(texts), size});
  loaded_->in_batches(texts.size(), [&](size_t begin, size_t end) {
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
  const TextClassifier& model = needed(loaded_->text_classes, "rate", kRatesTexts, config());
  check_second_texts("rate", model.config, texts, seconds);
  std::vector<double> numbers(texts.size(), std::numeric_limits<double>::quiet_NaN());
  loaded_->in_batches(texts.size(), [&](size_t begin, size_t end) {
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
  if (loaded_->image_classes) {
    for (size_t i = 0; i < texts.size(); ++i) {
      stop_if_asked();
      if (is_blank(texts[i])) continue;
      const ClassProbabilities found = tapestry::classify(*loaded_->image_classes, texts[i]);
      classes[i] = chosen_classes(labels, found, choice, several);
    }
    return classes;
  }
  constexpr auto kOfTexts = static_cast<Ability>(kClassifies | kFindsClasses);
  const TextClassifier& model = needed(loaded_->text_classes, "classify", kOfTexts, config());
  check_second_texts("classify", model.config, texts, seconds);
  loaded_->in_batches(texts.size(), [&](size_t begin, size_t end) {
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

std::vector<std::vector<FoundAnswer>> TrainedModel::answer(
    const std::vector<std::string>& questions, const std::vector<std::string>& contexts,
    int64_t n_best) const {
  const SpanModel& model = needed(loaded_->spans, "answer", kFindsAnswers, config());
  check(questions.size() == contexts.size(), "answer", "needs a context for each question, got ",
        contexts.size(), " and ", questions.size(), '.');
  check(n_best >= 1, "answer", "expected 1 <= n_best, got ", n_best, '.');
  std::vector<std::vector<FoundAnswer>> answers(questions.size());
  loaded_->in_batches(questions.size(), [&](size_t begin, size_t end) {
    std::vector<Question> asked;
    for (size_t i = begin; i < end; ++i) {
      if (is_blank(questions[i]) || is_blank(contexts[i])) continue;
      asked.push_back({.id = std::to_string(i),
                       .context = std::make_shared<const std::string>(contexts[i]),
                       .question = questions[i],
                       .answers = {},
                       .place = place_of_line(static_cast<int64_t>(i) + 1)});
    }
    const QuestionCorpus corpus =
        encode_questions(std::move(asked), *model.tokenizers.source, question_options(config()),
                         /*labelled=*/false);
    auto found = find_answers(model, corpus, n_best);
    for (size_t q = 0; q < found.size(); ++q) {
      answers[std::stoul(corpus.questions[q].id)] = std::move(found[q]);
    }
  });
  return answers;
}

std::vector<std::vector<double>> TrainedModel::predict(
    const std::vector<std::vector<double>>& x) const {
  const RegressionModel& model = needed(loaded_->points, "predict", kPredictsNumbers, config());
  const auto features = static_cast<size_t>(model.points.features);
  std::vector<std::vector<double>> predictions;
  loaded_->in_batches(x.size(), [&](size_t begin, size_t end) {
    std::vector<double> numbers;
    for (size_t i = begin; i < end; ++i) {
      check(x[i].size() == features, "predict", "point ", i + 1, " must have ", features,
            " numbers, got ", x[i].size(), '.');
      numbers.insert(numbers.end(), x[i].begin(), x[i].end());
    }
    const std::vector<double> y = model.predict(numbers);
    for (auto at = y.begin(); at != y.end(); at += model.outputs()) {
      predictions.emplace_back(at, at + model.outputs());
    }
  });
  return predictions;
}

std::vector<std::pair<TextInWords, std::vector<WordLabel>>> TrainedModel::label_words(
    const std::vector<std::string>& texts) const {
  const auto& model = needed(loaded_->word_labels, "label_words", kLabelsWords, config());
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
  if (loaded_->pairs && can(kFillsMasks)) {
    fail(ErrorKind::kConfig, "[fill_mask] guesses words with a masked model; one of task ",
         config().task->name, " restores lines.");
  }
  const TextModel& model = needed(loaded_->masked, "fill_mask", kFillsMasks, config());
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
  const Translator& models = loaded_->translator("fill_mask", kFillsMasks);
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
      tapestry::translate(models.models(), sentences, options, loaded_->options.batch_size);
  std::vector<std::string> texts(lines.size());
  for (size_t i = 0; i < places.size(); ++i) {
    texts[places[i]] = restorer.text(sentences.sources[i], found[i].at(0).tokens);
  }
  return texts;
}

}  // namespace tapestry
