#include "apps/tasks/prompts/chat.h"

#include <algorithm>

#include "apps/tasks/prompts/prompt_answering.h"
#include "apps/tasks/prompts/talk_format.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/training_loss.h"
#include "data/batches/batch_rows.h"
#include "data/examples/talks.h"

namespace tapestry {
namespace {

// Targets stay on the host: the loss validates them without waiting for the GPU.
LanguageModel::Batch on_device(const BlockBatch& batch, Device device) {
  return {batch.ids.to(device), batch.targets,
          batch.lengths.defined() ? batch.lengths.to(device) : Tensor()};
}

LossSums loss_over(const TextModel& model, const TalkCorpus& corpus,
                   const CrossEntropyOptions& options, const RankGroup& group = {}) {
  return loss_over_epoch(TalkBatches(corpus, unshuffled(model.config.batch)), group,
                         [&](const BlockBatch& batch) {
                           return model.model.loss(on_device(batch, model.device()), options);
                         });
}

TalkCorpus load_for_validation(const Config& config, const std::vector<CorpusSpec>& corpora,
                               const Tokenizer& reader, const LoadContext& context = {}) {
  CorpusOptions whole = config.data.corpus;
  whole.overlong = "truncate";
  return load_talks(corpora, reader, whole, context);
}

// The last answer of talks, as the model would give it.
std::vector<Sample> samples_of(const TextModel& model, const TalkCorpus& corpus, int64_t wanted) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  std::vector<Sample> samples;
  std::vector<GreedyPrompt> prompts;
  for (const int64_t i : shown_examples(wanted, corpus.size())) {
    const auto tokens = corpus.tokens[i], answers = corpus.answers[i];
    // The beginning of an answer may be cut.
    const auto begin = tokens.end() - std::min<int64_t>(std::ssize(tokens), answers.end()[-2]);
    const auto end = tokens.end() - answers.end()[-1];
    std::vector<int32_t> ids = corpus.special.beginning_of(tokens);
    ids.insert(ids.end(), tokens.begin(), begin);
    samples.push_back({.given = {{"prompt", tokenizer.decode({tokens.begin(), begin})},
                                 {"reference", tokenizer.decode({begin, end})}}});
    prompts.push_back({std::move(ids), end - begin});
  }
  const std::vector<std::string> outputs = greedy_answers(model, corpus.special, prompts);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].output = outputs[i];
  return samples;
}

struct ChatKind {
  ChatKind(Config config, TokenizerPair given, const Report& report) {
    TalkSetting talks = prepare_talks(config, std::move(given), report);
    teacher = read_teacher(config, talks.tokenizers, report);
    train = load_talks(config.data.train, *talks.reader, config.data.corpus,
                       load_context(config, report, "train"));
    report_counts("training data", train, report);
    model = std::make_unique<TextModel>(config, std::move(talks.tokenizers), ModelUse::kTraining);
    held_out = load_held_out_sets<TalkCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_for_validation(config, corpora, *talks.reader, context);
        });
  }

  TalkBatches batches(DataPosition start) const {
    return TalkBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const BlockBatch& batch) {
    return {.tokens = batch.lengths.defined() ? sum_of(batch.lengths) : batch.ids.numel(),
            .targets = static_cast<double>(batch.tokens)};
  }
  CrossEntropy loss(const BlockBatch& batch, const CrossEntropyOptions& options) const {
    return training_loss(model->model, on_device(batch, model->device()), options, teacher.get());
  }
  std::vector<std::string> texts(const BlockBatch& batch) const {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return model->tokenizers.source->decode(
          batch.lengths.defined() ? ids_of_row(batch.ids, row, batch.lengths)
                                  : ids_of_row(batch.ids, row, batch.ids.shape()[1]));
    });
  }
  std::map<std::string, double> measure(const TalkCorpus& corpus,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    show_samples(details, [&] { return samples_of(*model, corpus, details->wanted); });
    return loss_over(*model, corpus, options, group).metrics();
  }
  int64_t choices() const { return model->tokenizers.source->vocab_size(); }

  std::unique_ptr<TextModel> model;
  std::unique_ptr<Teacher> teacher;  ///< of training.teacher
  TalkCorpus train;
  OfHeldOut<TalkCorpus> held_out;
};

}  // namespace

std::unique_ptr<TrainingTask> make_chat_task(const Config& config, TokenizerPair tokenizers,
                                             const TaskPlace& place, const Report& report) {
  return make_supervised<ChatKind>(config, std::move(tokenizers), place, report);
}

Evaluation evaluate_chat(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora) {
  const std::string folder = files.folder;
  const auto loaded = TextModel::load(std::move(files), device, "evaluate", kModelsText);
  const TextModel& model = *loaded;
  ChatFormat format = chat_format_of(model.tokenizers, folder);
  format.loss_on = model.config.data.loss_on;
  const TalkCorpus talks = load_for_validation(model.config, with_format(corpora, format),
                                               *talk_tokenizer(format, model.tokenizers.source));
  warn_of_dropped(talks.counts);
  Evaluation result;
  result.add_losses(loss_over(model, talks, {}));
  result.add_count("talks", talks.size());
  return result;
}

}  // namespace tapestry
