// The task that learns which of two answers to a prompt is better.
#include <algorithm>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/prompts/prompt_answering.h"
#include "apps/tasks/prompts/talk_format.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "data/batches/batch_rows.h"
#include "data/examples/preferences.h"

namespace tapestry {
namespace {

std::vector<int64_t> targets_of_rows(const PreferenceBatch& batch) {
  std::vector<int64_t> counts;
  for (int64_t row = 0; row < 2 * batch.rows; ++row) {
    counts.push_back(count_targets(batch.targets.slice(row, row + 1)));
  }
  return counts;
}

// The tokens before each answer.
Tensor prompt_lengths(const PreferenceBatch& batch) {
  const std::vector<int64_t> answers = targets_of_rows(batch);
  std::vector<int32_t> lengths = batch.lengths.to_vector<int32_t>();
  // The last token of a prompt has a target, the last one of an answer is no input.
  for (size_t row = 0; row < lengths.size(); ++row) {
    lengths[row] += 1 - static_cast<int32_t>(answers[row]);
  }
  return Tensor::from(lengths, {std::ssize(lengths)});
}

// Targets stay on the host: the model selects the places that have one.
LanguageModel::Batch on_device(const PreferenceBatch& batch, const TextModel& model) {
  const Device device = model.device();
  LanguageModel::Batch result{batch.ids.to(device), batch.targets, batch.lengths.to(device)};
  if (model.config.model.prefix_lm) result.prefix_lengths = prompt_lengths(batch).to(device);
  return result;
}

// The log-probabilities of the answers of a corpus under a model before its training: (N, 2)
// float64 in host memory.
class Reference {
 public:
  Reference() = default;
  explicit Reference(const PreferenceCorpus& corpus)
      : values_(Tensor::zeros({corpus.size(), 2}, DType::kFloat64)),
        checksum_(checksum_of(corpus)) {}

  bool defined() const { return values_.defined(); }

  void measure(const TextModel& model, const PreferenceCorpus& corpus, const RankGroup& group) {
    const NoTape constants;
    PreferenceBatches batches(corpus, unshuffled(model.config.batch));
    const int64_t count = batches.batches_in_epoch();
    Progress progress("measuring the model before its training", count, "batches");
    std::vector<std::vector<double>> own;
    std::vector<int64_t> examples;
    for (int64_t i = 0; i < count; ++i, progress.add()) {
      const PreferenceBatch batch = batches.next();
      examples.insert(examples.end(), batch.indices.begin(), batch.indices.end());
      if (!group.owns(i)) continue;
      const Tensor found = model.model.log_probabilities(on_device(batch, model)).value();
      own.push_back(found.to_vector<double>());
    }
    auto example = examples.begin();
    for (const std::vector<double>& found : group.in_order(own, count)) {
      for (size_t i = 0; i + 1 < found.size(); i += 2) {
        std::copy_n(found.data() + i, 2, values_.data<double>() + 2 * *example++);
      }
    }
  }

  // (2B) of a batch, beside its log-probabilities.
  Tensor of(const PreferenceBatch& batch, const Tensor& beside) const {
    const Tensor rows = Tensor::zeros({2 * batch.rows}, DType::kFloat64);
    for (size_t i = 0; defined() && i < batch.indices.size(); ++i) {
      std::copy_n(values_.data<double>() + 2 * batch.indices[i], 2, rows.data<double>() + 2 * i);
    }
    return rows.to(beside.dtype()).to(beside.device());
  }

  void keep(const std::string& name, NamedTensors& kept) const {
    if (!defined()) return;
    kept.emplace_back(name, values_);
    kept.emplace_back(name + ".of", checksum_);
  }

  // After a checkpoint was read: the examples are those that were measured.
  void check_examples(const PreferenceCorpus& corpus, const char* what) const {
    if (!defined() || checksum_.to_vector<int32_t>() == checksum_of(corpus).to_vector<int32_t>()) {
      return;
    }
    fail(ErrorKind::kConfig, "[preference] the examples of data.", what,
         " are not those of the checkpoint, for which it keeps what the model of init_from says: "
         "undo the change, or start anew with another output_dir.");
  }

 private:
  static Tensor checksum_of(const PreferenceCorpus& corpus) {
    const uint64_t sum = corpus.checksum();
    return Tensor::from<int32_t>(
        {static_cast<int32_t>(sum & 0xffffffff), static_cast<int32_t>(sum >> 32)}, {2});
  }

  Tensor values_, checksum_;
};

ComparedAnswers compare(const TextModel& model, const PreferenceBatch& batch,
                        const Reference& reference) {
  ComparedAnswers answers{model.model.log_probabilities(on_device(batch, model)),
                          targets_of_rows(batch)};
  if (model.config.preference.has_reference()) {
    answers.reference = reference.of(batch, answers.log_probabilities.value());
  }
  return answers;
}

// By token: the better answer of each example, then the worse one.
std::vector<double> by_token(const ComparedAnswers& answers) {
  std::vector<double> values = answers.log_probabilities.value().to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] /= static_cast<double>(answers.tokens[i]);
  return values;
}

// By how much the reference finds all answers likelier, and their tokens.
std::vector<double> drift_of(const ComparedAnswers& answers) {
  if (!answers.reference.defined()) return {};
  double drift = 0, tokens = 0;
  const std::vector<double> before = answers.reference.to_vector<double>();
  const std::vector<double> now = answers.log_probabilities.value().to_vector<double>();
  for (size_t i = 0; i < now.size(); ++i) {
    drift += before[i] - now[i];
    tokens += static_cast<double>(answers.tokens[i]);
  }
  return {drift, tokens};
}

// Sums over pairs of numbers.
struct PairSums {
  double first = 0, second = 0, larger = 0, pairs = 0;

  void add(const std::vector<double>& values) {
    for (size_t i = 0; i + 1 < values.size(); i += 2, ++pairs) {
      first += values[i], second += values[i + 1];
      larger += values[i] > values[i + 1] ? 1 : 0;
    }
  }
  static PairSums of(const std::vector<PairSums>& parts) {
    PairSums all;
    for (const PairSums& part : parts) {
      all.first += part.first, all.second += part.second;
      all.larger += part.larger, all.pairs += part.pairs;
    }
    return all;
  }
};

std::map<std::string, double> measure_answers(const TextModel& model,
                                              const PreferenceCorpus& corpus,
                                              const Reference& reference,
                                              const RankGroup& group = {}) {
  const PreferenceOptions& options = model.config.preference;
  std::vector<PairSums> own_rewards, own_likelihoods, own_drifts;
  PreferenceBatches batches(corpus, unshuffled(model.config.batch));
  const int64_t count = batches.batches_in_epoch();
  const LossSums sums = loss_over_epoch(batches, group, [&](const PreferenceBatch& batch) {
    const ComparedAnswers answers = compare(model, batch, reference);
    own_rewards.emplace_back().add(rewards(answers, options).value().to_vector<double>());
    own_likelihoods.emplace_back().add(by_token(answers));
    own_drifts.emplace_back().add(drift_of(answers));
    return preference_loss(answers, options);
  });
  const PairSums rewards = PairSums::of(group.in_order(own_rewards, count));
  const PairSums likelihoods = PairSums::of(group.in_order(own_likelihoods, count));
  std::map<std::string, double> metrics;
  for (const char* name : {"loss", "nll", "accuracy"}) metrics[name] = sums.metrics().at(name);
  metrics["margin"] = (rewards.first - rewards.second) / rewards.pairs;
  metrics["chosen_reward"] = rewards.first / rewards.pairs;
  metrics["rejected_reward"] = rewards.second / rewards.pairs;
  metrics["likelier"] = 100 * likelihoods.larger / likelihoods.pairs;
  if (options.has_reference()) {
    const PairSums drifts = PairSums::of(group.in_order(own_drifts, count));
    metrics["kl"] = drifts.first / drifts.second;
  }
  return metrics;
}

PreferenceCorpus load_whole(const Config& config, const std::vector<CorpusSpec>& corpora,
                            const Tokenizer& tokenizer, const LoadContext& context = {}) {
  CorpusOptions options = config.data.corpus;
  options.overlong = "truncate";
  return load_preferences(corpora, tokenizer, options, context);
}

std::vector<Sample> samples_of(const TextModel& model, const PreferenceCorpus& corpus,
                               int64_t wanted) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const auto text_of = [&](std::span<const int32_t> ids) {
    return tokenizer.decode({ids.begin(), ids.end()});
  };
  std::vector<Sample> samples;
  std::vector<GreedyPrompt> prompts;
  for (const int64_t i : shown_examples(wanted, corpus.size())) {
    const auto prompt = corpus.prompts[i];
    std::vector<int32_t> ids = corpus.special.beginning_of(prompt);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    prompts.push_back({std::move(ids), corpus.chosen.length(i)});
    samples.push_back({.given = {{"prompt", text_of(prompt)},
                                 {"reference", text_of(corpus.chosen[i])},
                                 {"rejected", text_of(corpus.rejected[i])}}});
  }
  const std::vector<std::string> outputs = greedy_answers(model, corpus.special, prompts);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].output = outputs[i];
  return samples;
}

struct PreferenceKind {
  PreferenceKind(Config config, TokenizerPair given, const Report& report) {
    TalkSetting setting;
    if (examples_of(config).talks) {
      setting = prepare_talks(config, std::move(given), report);
    } else {
      setting.tokenizers = prepare_tokenizers(config, std::move(given), report);
      setting.reader = setting.tokenizers.source;
    }
    train = load_preferences(config.data.train, *setting.reader, config.data.corpus,
                             load_context(config, report, "train"));
    report_counts("training data", train, report);
    held_out = load_held_out_sets<PreferenceCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_whole(config, corpora, *setting.reader, context);
        });
    model = std::make_unique<TextModel>(config, std::move(setting.tokenizers), ModelUse::kTraining);
    if (!config.preference.has_reference()) return;
    of_train = Reference(train);
    for (const HeldOut set : kHeldOut) {
      if (held_out[set].size() > 0) of_held_out[set] = Reference(held_out[set]);
    }
  }

  PreferenceBatches batches(DataPosition start) const {
    return PreferenceBatches(train, model->config.batch, std::move(start));
  }
  static UpdateSize size_of(const PreferenceBatch& batch) {
    return {.tokens = batch.tokens, .targets = static_cast<double>(batch.rows)};
  }
  CrossEntropy loss(const PreferenceBatch& batch, const CrossEntropyOptions& options) const {
    return preference_loss(compare(*model, batch, of_train), model->config.preference,
                           options.normalizer);
  }
  std::vector<std::string> texts(const PreferenceBatch& batch) const {
    const auto text_of = [&](const TokenLists& lists, int64_t i) {
      return model->tokenizers.source->decode({lists[i].begin(), lists[i].end()});
    };
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      const int64_t i = batch.indices[static_cast<size_t>(row)];
      return concat(text_of(train.prompts, i), "  ->  ", text_of(train.chosen, i), "  not  ",
                    text_of(train.rejected, i));
    });
  }
  std::map<std::string, double> measure(const PreferenceCorpus& corpus, const CrossEntropyOptions&,
                                        const RankGroup& group, ValidationDetails* details) const {
    show_samples(details, [&] { return samples_of(*model, corpus, details->wanted); });
    const bool is_test = &corpus == &held_out[HeldOut::kTest];
    return measure_answers(*model, corpus,
                           of_held_out[is_test ? HeldOut::kTest : HeldOut::kValidation], group);
  }
  static int64_t choices() { return 0; }

  NamedTensors kept() const {
    NamedTensors kept;
    of_train.keep("train", kept);
    for (const HeldOut set : kHeldOut) of_held_out[set].keep(name_of(set), kept);
    return kept;
  }
  void begin(bool anew, const RankGroup& group) {
    const auto take = [&](Reference& reference, const PreferenceCorpus& corpus, const char* what) {
      if (!reference.defined()) return;
      if (anew) reference.measure(*model, corpus, group);
      reference.check_examples(corpus, what);
    };
    take(of_train, train, "train");
    for (const HeldOut set : kHeldOut) {
      take(of_held_out[set], held_out[set], set == HeldOut::kTest ? "test" : "valid");
    }
  }

  std::unique_ptr<TextModel> model;
  PreferenceCorpus train;
  OfHeldOut<PreferenceCorpus> held_out;
  Reference of_train;  ///< only with a loss that has a reference, as those of the sets
  OfHeldOut<Reference> of_held_out;
};

// Without a reference, so by the log-probabilities alone.
Evaluation evaluate(ModelFiles files, const std::string& device,
                    const std::vector<CorpusSpec>& corpora) {
  const std::string folder = files.folder;
  const auto model = TextModel::load(std::move(files), device, "evaluate", kModelsText);
  ChatFormat format;
  std::shared_ptr<const Tokenizer> reader = model->tokenizers.source;
  if (examples_of(model->config).talks) {
    format = chat_format_of(model->tokenizers, folder);
    reader = talk_tokenizer(format, reader);
  }
  const PreferenceCorpus corpus = load_whole(model->config, with_format(corpora, format), *reader);
  warn_of_dropped(corpus.counts);
  const std::map<std::string, double> metrics = measure_answers(*model, corpus, {});
  Evaluation result;
  result.add(metrics, {"likelier", "nll"});
  result.add_count("prompts", corpus.size());
  return result;
}

void set_defaults(Config& config) {
  config.generation.num_beams = 1;
  config.generation.do_sample = true;
}

}  // namespace

extern const Task kPreferenceTask(
    {.name = "preference",
     .abilities = kContinuesText | kModelsText,
     .metrics = {"accuracy", "margin", "likelier", "chosen_reward", "rejected_reward", "nll",
                 "loss"},
     .bind_corpus = bind_preferences,
     .sections = {kGeneration, kPreference},
     .models_of = "clm",
     .set_defaults = set_defaults},
    {{&kPreferenceExamples, {&kCausalModel}, make_supervised<PreferenceKind>, evaluate},
     {&kPreferenceTalkExamples, {&kCausalModel}, make_supervised<PreferenceKind>, evaluate}});

}  // namespace tapestry
