#include "apps/tasks/prompts/prompt_answering.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/tasks/packed_search.h"
#include "apps/tasks/prompts/judge.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/training_loss.h"
#include "core/base/interruption.h"
#include "data/files/utf8.h"
#include "data/scores/answer_scores.h"

namespace tapestry {

std::vector<std::string> greedy_answers(const TextModel& model, const SpecialIds& special,
                                        const std::vector<GreedyPrompt>& prompts,
                                        AnswerLimit limit) {
  // An output that is much longer than the reference cannot be equal to it.
  const auto longest_output = [](int64_t reference) { return 2 * reference + 8; };
  SearchOptions greedy = model.config.generation;
  greedy.do_sample = false;
  greedy.num_beams = greedy.n_best = 1;
  greedy.min_new_tokens = 0;
  SearchTask task;
  task.sentences = std::ssize(prompts);
  const Device device = model.model.table.device();
  task.sentences_at_once = rows_of_a_search(model.config.training.eval_batch_size, device);
  task.eos_id = special.eos;
  task.more_ends = special.more_ends;
  task.banned = special.banned();
  task.force_eos = task.log_probabilities = false;
  for (const GreedyPrompt& prompt : prompts) {
    task.prompts.push_back(prompt.ids);
    if (limit == AnswerLimit::kReference) {
      greedy.max_new_tokens = longest_output(prompt.reference);
    }
    const ModelOptions& sizes = model.config.model;
    task.max_lengths.push_back(generation_limit(
        std::ssize(prompt.ids), sizes.max_position_embeddings, sizes.longest_sequence(), greedy));
  }
  greedy.max_new_tokens = 0;
  std::vector<std::string> answers(prompts.size());
  const auto packed = packed_for_search(model.config, model.store);
  Progress progress("answering prompts", task.sentences, "prompts");
  search_together(
      [&] { return std::make_unique<LanguageModelSteps>(model.model); }, task, greedy, {},
      [&](int64_t i, const std::vector<Hypothesis>& found) {
        answers[static_cast<size_t>(i)] = model.tokenizers.source->decode(found.at(0).tokens);
        progress.add();
        stop_if_asked();
      },
      device);
  return answers;
}

namespace {

// Targets stay on the host: the loss validates them without waiting for the GPU.
LanguageModel::Batch on_device(const PromptBatch& batch, const TextModel& model) {
  const Device device = model.device();
  LanguageModel::Batch result{batch.ids.to(device), batch.targets, batch.lengths.to(device)};
  if (model.config.model.prefix_lm) result.prefix_lengths = batch.prompt_lengths.to(device);
  return result;
}

LossSums loss_over(const TextModel& model, const PromptCorpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group) {
  return loss_over_epoch(
      PromptBatches(corpus, unshuffled(model.config.batch)), group,
      [&](const PromptBatch& batch) { return model.model.loss(on_device(batch, model), options); });
}

std::vector<std::string> greedy_answers(const TextModel& model, const PromptCorpus& corpus,
                                        std::span<const int64_t> examples,
                                        AnswerLimit limit = AnswerLimit::kReference) {
  std::vector<GreedyPrompt> prompts;
  for (const int64_t i : examples) {
    const auto prompt = corpus.prompts[i];
    std::vector<int32_t> ids = corpus.special.beginning_of(prompt);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    prompts.push_back({std::move(ids), corpus.answers.length(i)});
  }
  return greedy_answers(model, corpus.special, prompts, limit);
}

// The examples by the lengths of their prompts: those that are read together are padded to one.
std::vector<int64_t> by_length(const PromptCorpus& corpus) {
  std::vector<int64_t> order(static_cast<size_t>(corpus.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t i) { return corpus.prompts.length(i); });
  return order;
}

// Of a greedy search. An answer is exact if it is the reference, white space at their ends aside.
AnswerScores score_answers(const TextModel& model, const PromptCorpus& corpus,
                           const RankGroup& group) {
  const std::vector<int64_t> order = by_length(corpus);
  // One rank answers all of a batch. Only the last batch may have fewer rows than the others.
  const auto rows = static_cast<size_t>(model.config.training.eval_batch_size);
  std::vector<int64_t> own;
  int64_t batches = 0;
  for (size_t begin = 0; begin < order.size(); begin += rows) {
    const size_t end = std::min(begin + rows, order.size());
    if (!group.owns(batches++)) continue;
    own.insert(own.end(), order.begin() + static_cast<std::ptrdiff_t>(begin),
               order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  const std::vector<std::string> answers = greedy_answers(model, corpus, own);
  std::vector<std::vector<double>> scores;  // of each of this rank's batches: exact, f1, exact, ...
  for (size_t i = 0; i < own.size(); ++i) {
    if (i % rows == 0) scores.emplace_back();
    const std::string reference(corpus.answer_text[own[i]]);
    scores.back().push_back(strip(answers[i]) == strip(reference) ? 1 : 0);
    scores.back().push_back(answer_f1(answers[i], {reference}));
  }
  AnswerScores all;
  for (const std::vector<double>& batch : group.in_order(scores, batches)) {
    for (size_t i = 0; i < batch.size(); i += 2) all.add(batch[i], batch[i + 1]);
  }
  return all;
}

SampledRatio pass_rate(const TextModel& model, const PromptCorpus& corpus,
                       const std::string& command) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const std::vector<int64_t> order = by_length(corpus);
  const std::vector<std::string> answers =
      greedy_answers(model, corpus, order, AnswerLimit::kGeneration);
  std::vector<AnswerToJudge> to_judge(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto prompt = corpus.prompts[order[i]];
    to_judge[static_cast<size_t>(order[i])] = {tokenizer.decode({prompt.begin(), prompt.end()}),
                                               std::string(corpus.answer_text[order[i]]),
                                               answers[i]};
  }
  SampledRatio rate;
  for (const double verdict : judge(command, to_judge)) rate.add(verdict, 1);
  return rate;
}

Evaluation evaluate(const TextModel& model, const PromptCorpus& answers) {
  Evaluation result;
  const LossSums losses = loss_over(model, answers, {}, {});
  AnswerScores scores;
  if (std::isfinite(losses.nll().value())) scores = score_answers(model, answers, {});
  result.add_answers(scores);
  result.add_losses(losses);
  result.add_count("questions", answers.size());
  return result;
}

std::vector<Sample> samples_of(const TextModel& model, const PromptCorpus& corpus, int64_t wanted) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const std::vector<int64_t> shown = shown_examples(wanted, corpus.size());
  const std::vector<std::string> answers = greedy_answers(model, corpus, shown);
  std::vector<Sample> samples;
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto prompt = corpus.prompts[shown[i]];
    samples.push_back({.given = {{"prompt", tokenizer.decode({prompt.begin(), prompt.end()})},
                                 {"reference", std::string(corpus.answer_text[shown[i]])}},
                       .output = answers[i]});
  }
  return samples;
}

struct PromptKind {
  PromptKind(const Config& config, TokenizerPair given, const Report& report) {
    // Errors in the validation data come before the work on a tokenizer, which reads the rest.
    for (const HeldOut set : kHeldOut) {
      for (const CorpusSpec& spec : corpora_of(config, set)) {
        const auto reader = open_corpus(spec);
        for (TextPair pair; reader->next(pair);) {
        }
      }
    }
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    teacher = read_teacher(config, tokenizers, report);
    train = load_prompts(config.data.train, *tokenizers.source, config.data.corpus,
                         load_context(config, report, "train"));
    report_counts("training data", train, report);
    model = std::make_unique<TextModel>(config, std::move(tokenizers), ModelUse::kTraining);
    held_out = load_held_out_sets<PromptCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_for_validation(*model, corpora, context);
        });
  }

  PromptBatches batches(DataPosition start) const {
    return PromptBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const PromptBatch& batch) {
    return {.tokens = batch.tokens, .targets = static_cast<double>(batch.answer_tokens)};
  }
  CrossEntropy loss(const PromptBatch& batch, const CrossEntropyOptions& options) const {
    return training_loss(model->model, on_device(batch, *model), options, teacher.get());
  }
  std::vector<std::string> texts(const PromptBatch& batch) const {
    const Tokenizer& tokenizer = *model->tokenizers.source;
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      const std::vector<int32_t> ids = ids_of_row(batch.ids, row, batch.lengths);
      const auto answer = ids.begin() + batch.prompt_lengths.data<int32_t>()[row];
      return concat(tokenizer.decode({ids.begin(), answer}), "  ->  ",
                    tokenizer.decode({answer, ids.end()}));
    });
  }
  std::map<std::string, double> measure(const PromptCorpus& corpus,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    show_samples(details, [&] { return samples_of(*model, corpus, details->wanted); });
    return tapestry::measure(*model, corpus, options, group);
  }
  int64_t choices() const { return model->tokenizers.source->vocab_size(); }

  std::unique_ptr<TextModel> model;
  std::unique_ptr<Teacher> teacher;  ///< of training.teacher
  PromptCorpus train;
  OfHeldOut<PromptCorpus> held_out;
};

}  // namespace

std::unique_ptr<TrainingTask> make_prompt_task(const Config& config, TokenizerPair tokenizers,
                                               const TaskPlace& place, const Report& report) {
  return make_supervised<PromptKind>(config, std::move(tokenizers), place, report);
}

Template prompt_template(const Config& config, const std::string& who) {
  if (!examples_of(config).prompted) {
    fail(ErrorKind::kConfig, '[', who,
         "] expected a model that was trained on records with a prompt and an answer; this one was "
         "trained on text.");
  }
  return Template(config.data.train.front().prompt);
}

PromptCorpus load_for_validation(const TextModel& model, const std::vector<CorpusSpec>& corpora,
                                 const LoadContext& context) {
  CorpusOptions whole = model.config.data.corpus;
  whole.overlong = "truncate";
  whole.keep_text = true;
  return load_prompts(corpora, *model.tokenizers.source, whole, context);
}

Evaluation evaluate_prompts(ModelFiles files, const std::string& device,
                            const std::vector<CorpusSpec>& corpora) {
  const auto loaded = TextModel::load(std::move(files), device, "evaluate", kModelsText);
  const TextModel& model = *loaded;
  const PromptCorpus answers = load_for_validation(model, corpora);
  warn_of_dropped(answers.counts);
  return evaluate(model, answers);
}

Evaluation evaluate_judged(ModelFiles files, const std::string& device,
                           const std::vector<CorpusSpec>& corpora, const std::string& command) {
  const auto loaded = TextModel::load(std::move(files), device, "evaluate --judge", kModelsText);
  const PromptCorpus answers = load_for_validation(*loaded, corpora);
  warn_of_dropped(answers.counts);
  Evaluation result;
  result.add_percent("pass_rate", pass_rate(*loaded, answers, command));
  const Evaluation more = evaluate(*loaded, answers);
  result.figures.insert(result.figures.end(), more.figures.begin(), more.figures.end());
  return result;
}

std::map<std::string, double> measure(const TextModel& model, const PromptCorpus& answers,
                                      const CrossEntropyOptions& options, const RankGroup& group) {
  std::map<std::string, double> metrics = loss_over(model, answers, options, group).metrics();
  // The logits of a model that diverged are useless for a search.
  AnswerScores scores;
  if (std::isfinite(metrics.at("nll"))) scores = score_answers(model, answers, group);
  metrics["exact_match"] = scores.exact.percent();
  metrics["f1"] = scores.f1.percent();
  return metrics;
}

}  // namespace tapestry
