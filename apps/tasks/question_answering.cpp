#include "apps/tasks/question_answering.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "core/base/interruption.h"
#include "data/files/utf8.h"
#include "data/scores/answer_scores.h"

namespace tapestry {
namespace {

CrossEntropy loss_of(const SpanModel& model, const QuestionBatch& batch,
                     const CrossEntropyOptions& options) {
  return model.model.loss(batch.ids.to(model.device()), batch.lengths,
                          model.segments(batch.segments), batch.labels, options);
}

LossSums loss_over(const SpanModel& model, const QuestionCorpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group) {
  return loss_over_epoch(
      QuestionBatches(corpus, unshuffled(model.config.batch)), group,
      [&](const QuestionBatch& batch) { return loss_of(model, batch, options); });
}

// A window's result for its question, as a row of numbers that ranks exchange.
struct WindowResult {
  BestSpans found;
  double no_answer;

  void append_to(std::vector<double>& row) const {
    row.insert(row.end(), {no_answer, found.log_total, static_cast<double>(found.spans.size())});
    for (const TokenSpan& span : found.spans) {
      row.insert(row.end(),
                 {static_cast<double>(span.first), static_cast<double>(span.last), span.score});
    }
  }
  static WindowResult take(const double*& row) {
    WindowResult result;
    result.no_answer = *row++;
    result.found.log_total = *row++;
    for (auto spans = static_cast<int64_t>(*row++); spans > 0; --spans, row += 3) {
      TokenSpan span;
      span.first = static_cast<decltype(span.first)>(row[0]);
      span.last = static_cast<decltype(span.last)>(row[1]);
      span.score = row[2];
      result.found.spans.push_back(span);
    }
    return result;
  }
};

// The spans found in all windows of one question. Spans count the tokens of the context.
class Candidates {
 public:
  explicit Candidates(int64_t n_best) : n_best_(static_cast<size_t>(n_best)) {}

  /// Adds the best spans of a window, and its score for no answer: HF's rule takes the lowest over
  /// the windows.
  void add(const BestSpans& found, int64_t shift, double no_answer) {
    for (TokenSpan span : found.spans) {
      span.first += shift;
      span.last += shift;
      keep(span);
    }
    totals_.push_back(found.log_total);
    no_answer_ = std::min(no_answer_, no_answer);
  }

  /// Spans and, if allowed, no answer (first and last -1), best first, with probabilities for
  /// scores.
  std::vector<TokenSpan> finish(bool no_answer) {
    if (no_answer) {
      spans_.push_back({-1, -1, no_answer_});
      totals_.push_back(no_answer_);
    }
    std::ranges::stable_sort(spans_, std::ranges::greater{}, &TokenSpan::score);
    spans_.resize(std::min(spans_.size(), n_best_));
    const double highest = *std::ranges::max_element(totals_);
    double total = 0;
    for (const double one : totals_) total += std::exp(one - highest);
    for (TokenSpan& span : spans_) span.score = std::exp(span.score - highest) / total;
    return spans_;
  }

 private:
  // Windows overlap: a span that two of them see counts once, with its better score.
  void keep(const TokenSpan& span) {
    const auto same = std::ranges::find_if(spans_, [&](const TokenSpan& other) {
      return other.first == span.first && other.last == span.last;
    });
    if (same == spans_.end()) {
      spans_.push_back(span);
    } else {
      same->score = std::max(same->score, span.score);
    }
  }

  size_t n_best_;
  std::vector<TokenSpan> spans_;
  std::vector<double> totals_;
  double no_answer_ = std::numeric_limits<double>::infinity();
};

FoundAnswer answer_of(const QuestionCorpus& corpus, int64_t question, const TokenSpan& span) {
  FoundAnswer answer;
  answer.probability = span.score;
  if (span.first < 0) return answer;
  int64_t begin = 0;
  answer.text = corpus.text_of(question, span.first, span.last, begin);
  const std::string_view context = *corpus.questions[static_cast<size_t>(question)].context;
  answer.begin = count_code_points(context.substr(0, static_cast<size_t>(begin)));
  answer.end = answer.begin + count_code_points(answer.text);
  return answer;
}

// Of the first answer to each question.
AnswerScores score_answers(const QuestionCorpus& corpus,
                           const std::vector<std::vector<FoundAnswer>>& found) {
  AnswerScores scores;
  for (size_t i = 0; i < found.size(); ++i) {
    std::vector<std::string> references;
    for (const Question::Answer& answer : corpus.questions[i].answers) {
      references.push_back(answer.text);
    }
    const std::string& answer = found[i].at(0).text;
    scores.add(exact_match(answer, references), answer_f1(answer, references));
  }
  return scores;
}

struct QuestionKind {
  QuestionKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    const auto told = [&](const std::string& what, const QuestionCorpus& questions) {
      report(
          concat(what, ": ", questions.windows.size(), " windows; ", questions.counts.summary()));
      report_each_corpus(questions.counts, report);
      warn_of_counts(what, questions.counts, report);
    };
    QuestionOptions options = question_options(config);
    options.overlong = config.data.corpus.overlong;
    train = load_questions(config.data.train, *tokenizers.source, options,
                           load_context(config, report, "train"));
    told("training data", train);
    for (const HeldOut set : kHeldOut) {
      if (corpora_of(config, set).empty()) continue;
      held_out[set] = load_questions(corpora_of(config, set), *tokenizers.source,
                                     question_options(config), load_context(config, report, set));
      told(concat(name_of(set), " data"), held_out[set]);
    }
    model = std::make_unique<SpanModel>(config, std::move(tokenizers), ModelUse::kTraining);
  }

  QuestionBatches batches(DataPosition start) const {
    return QuestionBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const QuestionBatch& batch) {
    // The loss is the mean over both ends.
    return {.tokens = batch.tokens, .targets = static_cast<double>(2 * batch.rows)};
  }
  CrossEntropy loss(const QuestionBatch& batch, const CrossEntropyOptions& options) const {
    return loss_of(*model, batch, options);
  }
  std::vector<std::string> texts(const QuestionBatch& batch) const {
    return row_texts(batch.rows, batch.windows, [&](int64_t row) {
      return model->tokenizers.source->decode(ids_of_row(batch.ids, row, batch.lengths));
    });
  }
  std::map<std::string, double> measure(const QuestionCorpus& questions,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    return tapestry::measure(*model, questions, options, group, details);
  }
  static int64_t choices() { return 0; }  // a row has places of its own

  std::unique_ptr<SpanModel> model;
  QuestionCorpus train;
  OfHeldOut<QuestionCorpus> held_out;
};

Evaluation evaluate_answers(ModelFiles files, const std::string& device,
                            const std::vector<CorpusSpec>& corpora) {
  const auto model = SpanModel::load(std::move(files), device, "evaluate", kFindsAnswers);
  const QuestionCorpus questions =
      load_questions(corpora, *model->tokenizers.source, question_options(model->config));
  warn_of_dropped(questions.counts);
  Evaluation result;
  const LossSums losses = loss_over(*model, questions, {}, {});
  AnswerScores scores;
  if (std::isfinite(losses.nll().value()))
    scores = score_answers(questions, find_answers(*model, questions, 1));
  result.add_answers(scores);
  result.add("nll", losses.nll());
  result.add_percent("accuracy", losses.correct());
  result.add_count("questions", questions.size());
  return result;
}

}  // namespace

extern const Task kQuestionAnswering(
    {.name = "question_answering",
     .abilities = kFindsAnswers,
     .metrics = {"f1", "exact_match", "nll", "loss", "accuracy"},
     .bind_corpus = bind_questions,
     .sections = {kAnswers}},
    {{&kQuestionExamples, {&kSpanModel}, make_supervised<QuestionKind>, evaluate_answers}});

QuestionOptions question_options(const Config& config) {
  return {.max_length = config.data.corpus.max_length,
          .doc_stride = config.data.doc_stride,
          .overlong = "truncate",
          .no_answer = config.answers.no_answer};
}

std::vector<std::vector<FoundAnswer>> find_answers(const SpanModel& model,
                                                   const QuestionCorpus& questions, int64_t n_best,
                                                   const RankGroup& group) {
  std::vector<Candidates> candidates(static_cast<size_t>(questions.size()), Candidates(n_best));
  std::vector<int64_t> all(questions.windows.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto rows = static_cast<size_t>(model.config.training.eval_batch_size);
  std::vector<std::vector<double>> own;
  int64_t batches = 0;
  Progress progress("finding answers", std::ssize(all), "windows");
  for (size_t begin = 0; begin < all.size(); begin += rows) {
    progress.to(static_cast<int64_t>(begin));
    stop_if_asked();
    if (!group.owns(batches++)) continue;
    const QuestionBatch batch = make_question_batch(
        questions, std::span(all).subspan(begin, std::min(rows, all.size() - begin)));
    const Var logits =
        model.model(batch.ids.to(model.device()), batch.lengths, model.segments(batch.segments));
    const std::vector<double> values =
        logits.value().to(Device{}).to(DType::kFloat64).to_vector<double>();
    const auto width = static_cast<size_t>(batch.ids.shape()[1]);
    std::vector<double> results;
    for (size_t row = 0; row < batch.windows.size(); ++row) {
      const auto& window = questions.windows[static_cast<size_t>(batch.windows[row])];
      const int64_t offset = questions.offset(window);
      const auto side = [&](size_t i) {
        return std::span(values).subspan((i * batch.windows.size() + row) * width, width);
      };
      const BestSpans found = best_spans(side(0), side(1),
                                         {.begin = offset,
                                          .end = offset + window.count,
                                          .max_length = model.config.answers.max_answer_length,
                                          .n_best = n_best});
      WindowResult{found, side(0)[0] + side(1)[0]}.append_to(results);
    }
    own.push_back(std::move(results));
  }
  auto window = questions.windows.begin();
  for (const std::vector<double>& results : group.in_order(own, batches)) {
    const double* const end = results.data() + results.size();
    for (const double* row = results.data(); row < end; ++window) {
      const WindowResult result = WindowResult::take(row);
      candidates[static_cast<size_t>(window->question)].add(
          result.found, window->first - questions.offset(*window), result.no_answer);
    }
  }
  std::vector<std::vector<FoundAnswer>> answers(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (const TokenSpan& span : candidates[i].finish(model.config.answers.no_answer)) {
      answers[i].push_back(answer_of(questions, static_cast<int64_t>(i), span));
    }
  }
  return answers;
}

std::map<std::string, double> measure(const SpanModel& model, const QuestionCorpus& questions,
                                      const CrossEntropyOptions& options, const RankGroup& group,
                                      ValidationDetails* details) {
  std::map<std::string, double> metrics = loss_over(model, questions, options, group).metrics();
  metrics.erase("ppl");  // spans are no words
  if (!std::isfinite(metrics.at("nll"))) {
    metrics["exact_match"] = metrics["f1"] = std::numeric_limits<double>::quiet_NaN();
    return metrics;
  }
  const auto found = find_answers(model, questions, 1, group);
  const int64_t wanted = details != nullptr ? details->wanted : 0;
  for (const int64_t i : shown_examples(wanted, questions.size())) {
    const Question& question = questions.questions[static_cast<size_t>(i)];
    const std::string& answer = found[static_cast<size_t>(i)].at(0).text;
    details->samples.push_back(
        {.given = {{"context", *question.context},
                   {"question", question.question},
                   {"reference", question.answers.empty() ? "" : question.answers[0].text}},
         .output = answer});
  }
  const AnswerScores scores = score_answers(questions, found);
  metrics["exact_match"] = scores.exact.percent();
  metrics["f1"] = scores.f1.percent();
  return metrics;
}

}  // namespace tapestry
