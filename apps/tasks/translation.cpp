// The task that translates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "apps/config/sections.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/packed_search.h"
#include "apps/tasks/pair_kind.h"
#include "data/corpora/shared_pairs.h"
#include "data/scores/metrics.h"
#include "data/scores/rouge.h"

namespace tapestry {
namespace {

std::map<std::string, std::unique_ptr<Metric>> validation_metrics(
    const EvaluationOptions& evaluation) {
  MetricOptions options;
  options.bleu.tokenize = evaluation.bleu_tokenize;
  options.bleu.lowercase = options.chrf.lowercase = evaluation.lowercase;
  std::vector<std::string> names = evaluation.extra_metrics;
  names.insert(names.end(), {"bleu", "chrf"});
  std::map<std::string, std::unique_ptr<Metric>> metrics;
  for (const std::string& name : names) metrics[name] = find_metric(name)->make(options);
  return metrics;
}

// Every line is kept: a score over a part cannot be compared with other systems.
ParallelCorpus load_held_out_pairs(const Config& config, const std::vector<CorpusSpec>& corpora,
                                   const TokenizerPair& tokenizers,
                                   const LoadContext& context = {}) {
  CorpusOptions whole = config.data.corpus;
  whole.overlong = "truncate";
  whole.keep_text = true;
  std::vector<CorpusSpec> measured = corpora;
  for (CorpusSpec& corpus : measured) corpus.alignments.clear();  // of training data
  return load_parallel(measured, tokenizers, whole, context);
}

struct Translated {
  std::vector<std::string> lines = {};
  int64_t cut = 0;  // number of translations that end at the length limit
};

template <class Model>
Translated translations_of(const TranslationModel<Model>& model, const ParallelCorpus& pairs,
                           const RankGroup& group) {
  const Config& config = model.config;
  const auto packed = packed_for_search(config, model.store);
  SearchOptions search = config.generation;
  search.num_beams = config.evaluation.num_beams;
  search.do_sample = false;
  const int64_t size = config.training.eval_batch_size;
  const int64_t batches = (pairs.size() + size - 1) / size;
  Sentences sentences{.rows = pairs.rows, .log_probabilities = false};
  for (int64_t i = 0; i < pairs.size(); ++i) {
    if (!group.owns(i / size)) continue;
    sentences.sources.emplace_back(pairs.source[i].begin(), pairs.source[i].end());
  }
  const auto found = translate(PairModels{{&model.model}}, sentences, search, size);
  std::vector<std::string> own;
  for (size_t begin = 0; begin < found.size(); begin += static_cast<size_t>(size)) {
    std::vector<std::string> lines;
    int64_t cut = 0;
    for (size_t i = begin; i < std::min(begin + static_cast<size_t>(size), found.size()); ++i) {
      lines.push_back(model.tokenizers.target->decode(found[i].at(0).tokens));
      cut += found[i][0].cut ? 1 : 0;
    }
    lines.push_back(std::to_string(cut));
    own.push_back(pack(lines));
  }
  Translated all;
  for (const std::string& batch : group.in_order(own, batches)) {
    std::vector<std::string> lines = unpack(batch);
    all.cut += std::stoll(lines.back());
    lines.pop_back();
    std::ranges::move(lines, std::back_inserter(all.lines));
  }
  return all;
}

// Warns if the model would learn targets longer than its translations can be.
void warn_of_long_targets(const ParallelCorpus& pairs, const SearchOptions& search,
                          const Report& report) {
  constexpr double kMany = 0.001;
  std::vector<int64_t> targets;
  std::vector<double> ratios;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const int64_t source = pairs.source.length(i) + pairs.rows.source.size();
    const int64_t target = pairs.target.length(i) + pairs.rows.target.size();
    if (target <= translation_limit(source, search)) continue;
    targets.push_back(target);
    const int64_t more = translation_limit(0, search);
    ratios.push_back(static_cast<double>(target - more) / static_cast<double>(source));
  }
  const auto few = static_cast<size_t>(kMany * static_cast<double>(pairs.size()));
  if (targets.size() <= few) return;
  std::ranges::sort(targets, std::greater());
  std::ranges::sort(ratios, std::greater());
  const std::string advice =
      search.max_new_tokens > 0
          ? concat("max_new_tokens: ", search.max_new_tokens, " into ", targets[few])
          : fmt::format("max_length_ratio: {} into {:.1f}", search.max_length_ratio,
                        std::ceil(10 * ratios[few]) / 10);
  const auto& warn = report.warn ? report.warn : report.say;
  warn(fmt::format(
      "{} of {} training targets ({:.3g} %) are longer than translations may be, which "
      "are cut there: change generation.{}",
      targets.size(), pairs.size(),
      100. * static_cast<double>(targets.size()) / static_cast<double>(pairs.size()), advice));
}

// Warns if what is measured was learnt by heart.
void warn_of_shared(const ParallelCorpus& train, const OfHeldOut<ParallelCorpus>& held_out,
                    const Report& report) {
  for (const HeldOut set : kHeldOut) {
    const ParallelCorpus& pairs = held_out[set];
    const SharedPairs shared = shared_pairs(pairs, train);
    if (shared.count == 0) continue;
    const auto& warn = report.warn ? report.warn : report.say;
    warn(fmt::format("{} of {} {} pairs stand in the training data, too, such as '{}'",
                     shared.count, pairs.size(), name_of(set), pairs.source_text[shared.first]));
  }
}

constexpr const char* kByLength = "bleu";  // the score reported for each length

void show(ValidationDetails& details, const ParallelCorpus& pairs,
          const std::vector<std::string>& hypotheses, const Translations& translations,
          const Metric& metric) {
  for (const int64_t i : shown_examples(details.wanted, pairs.size())) {
    details.samples.push_back({.given = {{"source", std::string(pairs.source_text[i])},
                                         {"reference", std::string(pairs.target_text[i])}},
                               .output = hypotheses[static_cast<size_t>(i)]});
  }
  const SentenceStatistics statistics(metric, translations);
  details.length_metric = kByLength;
  details.lengths =
      scores_by_length(pairs.target_text.to_strings(), [&](const std::vector<size_t>& sentences) {
        std::vector<double> sums(statistics.width());
        for (const size_t i : sentences) {
          for (size_t k = 0; k < sums.size(); ++k) sums[k] += statistics.of(0, i)[k];
        }
        return metric.score(sums.data());
      });
}

template <class Model>
std::map<std::string, double> measure_pairs(const TranslationModel<Model>& model,
                                            const ParallelCorpus& pairs,
                                            const CrossEntropyOptions& options,
                                            const RankGroup& group = {},
                                            ValidationDetails* details = nullptr) {
  const Config& config = model.config;
  std::map<std::string, double> metrics =
      loss_over(model, TranslationBatches(pairs, unshuffled(config.batch)), options, group)
          .metrics();
  if (!std::isfinite(metrics.at("nll"))) {
    // The model diverged: its logits are useless for a search.
    for (const char* metric : config.task->metrics) {
      metrics.emplace(metric, std::numeric_limits<double>::quiet_NaN());
    }
    return metrics;
  }
  const Translated translated = translations_of(model, pairs, group);
  const std::vector<std::string>& hypotheses = translated.lines;
  if (translated.cut > 0) metrics[kCutAtLimit] = static_cast<double>(translated.cut);
  const std::vector<std::string> references = pairs.target_text.to_strings();
  const Translations translations = one_system("validation", hypotheses, references);
  const auto scores = validation_metrics(config.evaluation);
  for (const auto& [name, metric] : scores) metrics[name] = corpus_score(*metric, translations);
  if (details != nullptr) show(*details, pairs, hypotheses, translations, *scores.at(kByLength));
  if (config.evaluation.rouge) {
    const RougeScore rouge = corpus_rouge(hypotheses, references);
    metrics["rouge_1"] = rouge.rouge_1.f;
    metrics["rouge_2"] = rouge.rouge_2.f;
    metrics["rouge_l"] = rouge.rouge_l.f;
  }
  return metrics;
}

// How much of the training data is aligned.
void report_alignments(const ParallelCorpus& pairs, const Report& report) {
  if (!pairs.has_alignments()) return;
  int64_t aligned = 0, links = 0;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const int64_t of_pair = pairs.alignments.length(i) / 2;
    aligned += of_pair > 0 ? 1 : 0, links += of_pair;
  }
  report(concat("alignments: ", links, " links of tokens in ", aligned, " of ", pairs.size(),
                " pairs"));
}

// What training pairs become in each epoch; null: they stay as they are. Rows stay below
// data.max_length, which a batch of tokens can hold.
std::shared_ptr<const TextVariation> variation_of(const Config& config, const PairRows& rows,
                                                  const TokenizerPair& tokenizers) {
  if (!config.variation.is_on()) return nullptr;
  const int64_t most = config.data.corpus.max_length;
  return std::make_shared<const TextVariation>(
      config.variation, tokenizers,
      SideLimits{.source = most - rows.source.size(), .target = most - rows.target.size()},
      config.seed);
}

template <class Model>
struct TranslationKind : PairKind<Model> {
  using PairKind<Model>::model;
  using PairKind<Model>::teacher;

  TranslationKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    teacher = read_teacher(config, tokenizers, report);
    const auto variation = variation_of(config, PairRows(tokenizers), tokenizers);
    train = load_parallel(config.data.train, tokenizers, config.data.corpus,
                          load_context(config, report, "train"));
    train.variation = variation;
    report_counts("training data", train, report);
    report_alignments(train, report);
    warn_of_long_targets(train, config.generation, report);
    held_out = load_held_out_sets<ParallelCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_held_out_pairs(config, corpora, tokenizers, context);
        });
    warn_of_shared(train, held_out, report);
    plans = plans_of(train, config.batch);
    model = std::make_unique<TranslationModel<Model>>(config, std::move(tokenizers),
                                                      ModelUse::kTraining);
  }

  TranslationBatches batches(DataPosition start) const {
    return TranslationBatches(train, plans, start);
  }
  std::map<std::string, double> measure(const ParallelCorpus& pairs,
                                        const CrossEntropyOptions& options, const RankGroup& group,
                                        ValidationDetails* details) const {
    return measure_pairs(*model, pairs, options, group, details);
  }

  ParallelCorpus train;
  EpochPlans plans;  ///< of `train`
  OfHeldOut<ParallelCorpus> held_out;
};

// Targets keep their characters, since the model learns to write them.
void keep_targets(Config& config) { config.tokenizer.target_normalization = "identity"; }

template <class Model>
Evaluation evaluate_pairs(ModelFiles files, const std::string& device,
                          const std::vector<CorpusSpec>& corpora) {
  const auto model =
      TranslationModel<Model>::load(std::move(files), device, "evaluate", kTranslates);
  const ParallelCorpus pairs = load_held_out_pairs(model->config, corpora, model->tokenizers);
  warn_of_dropped(pairs.counts);
  Evaluation result;
  const auto metrics = measure_pairs(*model, pairs, {});
  result.add(metrics, {"bleu", "chrf", "chrf++", "ter", "rouge_1", "rouge_2", "rouge_l", "nll",
                       "ppl", "accuracy"});
  result.add_count("sentences", pairs.size());
  if (const auto cut = metrics.find(kCutAtLimit); cut != metrics.end()) {
    result.add_count(kCutAtLimit, static_cast<int64_t>(cut->second));
  }
  return result;
}

}  // namespace

extern const Task kTranslation({.name = "translation",
                                .abilities = kTranslates | kScoresPairs,
                                .metrics = {"bleu", "chrf", "nll", "loss", "ppl", "rouge_1",
                                            "rouge_2", "rouge_l", "chrf++", "ter"},
                                .bind_corpus = bind_pairs,
                                .sections = {kGeneration, kEvaluation},
                                .validates_by_search = true,
                                .learns_from_teacher = true,
                                .set_defaults = keep_targets},
                               {{&kPairExamples,
                                 {&kEncoderDecoderModel},
                                 make_supervised<TranslationKind<EncoderDecoder>>,
                                 evaluate_pairs<EncoderDecoder>},
                                {&kPairExamples,
                                 {&kRnnAttentionModel},
                                 make_supervised<TranslationKind<RnnAttention>>,
                                 evaluate_pairs<RnnAttention>}});

}  // namespace tapestry
