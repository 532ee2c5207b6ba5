#include "apps/tasks/translation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "apps/config/sections.h"
#include "apps/tasks/encoder_decoder_task.h"
#include "data/metrics.h"

namespace tapestry {
template <class Model>
std::vector<std::vector<Hypothesis>> translate(const TranslationModel<Model>& model,
                                               const std::vector<std::vector<int32_t>>& sources,
                                               const SearchOptions& options,
                                               int64_t batch_sentences, int64_t first_id) {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  const SpecialIds ids{kPadId, kUnkId, kBosId, kEosId};
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(batch_sentences)) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch_sentences));
    const auto rows = static_cast<int64_t>(end - begin);
    const int64_t length = static_cast<int64_t>(sources[order[begin]].size()) + 1;  // eos
    Tensor source = Tensor::full({rows, length}, kPadId, DType::kInt32);
    Tensor lengths = Tensor::empty({rows}, DType::kInt32);
    std::vector<int64_t> numbers;
    for (int64_t row = 0; row < rows; ++row) {
      const size_t index = order[begin + static_cast<size_t>(row)];
      const std::vector<int32_t>& tokens = sources[index];
      int32_t* const target = source.data<int32_t>() + row * length;
      std::copy(tokens.begin(), tokens.end(), target);
      target[tokens.size()] = kEosId;
      lengths.data<int32_t>()[row] = static_cast<int32_t>(tokens.size()) + 1;
      numbers.push_back(first_id + static_cast<int64_t>(index));
    }
    auto batch = tapestry::translate(model.model, source.to(model.device()),
                                     lengths.to(model.device()), ids, options, numbers);
    for (size_t row = 0; row < batch.size(); ++row) {
      results[order[begin + row]] = std::move(batch[row]);
    }
  }
  return results;
}

template <class Model>
std::vector<Score> score(const TranslationModel<Model>& model, const ParallelCorpus& pairs,
                         int64_t batch_sentences) {
  std::vector<Score> scores(static_cast<size_t>(pairs.size()));
  BatchOptions in_order;
  in_order.batch_type = "sentences";
  in_order.batch_size = batch_sentences;
  in_order.shuffle = false;
  const EpochPlan plan(pairs, in_order, 0);
  for (int64_t i = 0; i < plan.batches(); ++i) {
    const TranslationBatch batch = make_translation_batch(pairs, plan.batch(i));
    const EncoderDecoder::Batch inputs = on_device(batch, model.device());
    const Var memory = model.model.encode(inputs.source, inputs.source_lengths);
    const Var hidden = model.model.decode(inputs.target_in, memory, inputs.source_lengths);
    const std::vector<double> values =
        target_log_probabilities(model.model.logits(hidden), batch.target_out);
    const int64_t length = batch.target_out.shape()[1];
    for (int64_t row = 0; row < batch.sentences; ++row) {
      Score& score = scores[static_cast<size_t>(batch.indices[static_cast<size_t>(row)])];
      score.tokens = batch.target_lengths.data<int32_t>()[row];
      const auto first = values.begin() + row * length;
      score.log_probability = std::accumulate(first, first + score.tokens, 0.0);
    }
  }
  return scores;
}

namespace {

template <class Model>
class TranslationTask : public EncoderDecoderTask<Model, TranslationBatches> {
  using Base = EncoderDecoderTask<Model, TranslationBatches>;
  using Base::loader_, Base::model_;

 public:
  TranslationTask(const Config& config, TokenizerPair given, DataPosition start,
                  const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train_ = load_parallel(config.data.train, tokenizers, config.data.corpus);
    report("training data: " + train_.counts.summary());
    if (!config.data.valid.empty()) {
      // Validation keeps every line: a score over a part cannot be compared with other systems.
      CorpusOptions whole = config.data.corpus;
      whole.overlong = "truncate";
      whole.keep_text = true;
      valid_ = load_parallel(config.data.valid, tokenizers, whole);
      report("validation data: " + valid_.counts.summary());
      if (const int64_t dropped = valid_.counts.total_dropped(); dropped > 0) {
        report(concat("warning: validation leaves out ", dropped,
                      " pairs; its figures are not those of the whole files"));
      }
    }
    report("batches: " + padding_of(train_, EpochPlan(train_, config.batch, 0)).summary());
    model_ = std::make_unique<TranslationModel<Model>>(
        config, std::move(tokenizers), training_precision(config, parse_device(config.device)));
    loader_ = std::make_unique<TranslationLoader>(train_, config.batch, start);
  }
  // The loader's thread reads the corpus, which is destroyed before the base class.
  ~TranslationTask() override { loader_.reset(); }

  int64_t batches_in_epoch() const override {
    return EpochPlan(train_, model_->config.batch, 0).batches();
  }

  std::map<std::string, double> validate(const CrossEntropyOptions& options) override {
    if (valid_.size() == 0) return {};
    const Config& config = model_->config;
    std::map<std::string, double> metrics =
        this->loss_over(TranslationBatches(valid_, unshuffled(config.batch)), options).metrics();
    if (!std::isfinite(
            metrics.at("nll"))) {  // the model diverged: its logits are useless for a search
      for (const char* metric : config.task->metrics) {
        metrics.emplace(metric, std::numeric_limits<double>::quiet_NaN());
      }
      return metrics;
    }
    std::vector<std::vector<int32_t>> sources;
    std::vector<std::string> hypotheses;
    for (int64_t i = 0; i < valid_.size(); ++i) {
      sources.emplace_back(valid_.source[i].begin(), valid_.source[i].end());
    }
    SearchOptions search = config.generation;
    search.num_beams = config.evaluation.num_beams;
    search.do_sample = false;
    for (const auto& best : translate(*model_, sources, search, config.training.eval_batch_size)) {
      hypotheses.push_back(model_->tokenizers.target->decode(best.at(0).tokens));
    }
    const std::vector<std::string> references = valid_.target_text.to_strings();
    const bool lowercase = config.evaluation.lowercase;
    metrics["bleu"] =
        corpus_bleu(hypotheses, references,
                    {.tokenize = config.evaluation.bleu_tokenize, .lowercase = lowercase})
            .score;
    metrics["chrf"] =
        corpus_chrf(hypotheses, references, ChrfOptions{.lowercase = lowercase}).score;
    if (config.evaluation.rouge) {
      const RougeScore rouge = corpus_rouge(hypotheses, references);
      metrics["rouge_1"] = rouge.rouge_1.f;
      metrics["rouge_2"] = rouge.rouge_2.f;
      metrics["rouge_l"] = rouge.rouge_l.f;
    }
    return metrics;
  }

 private:
  ParallelCorpus train_, valid_;
};

}  // namespace

extern const Task kTranslation{
    {.name = "translation",
     .abilities = kTranslates | kScoresPairs,
     .models = {ModelType::kEncoderDecoder, ModelType::kRnnAttention},
     .metrics = {"bleu", "chrf", "nll", "loss", "ppl", "rouge_1", "rouge_2", "rouge_l"},
     .bind_corpus = bind_pairs,
     .sections = {kGeneration, kEvaluation}},
    make_task_of_model<TranslationTask>,
    encoder_decoder_parameters,
    encoder_decoder_case,
    encoder_decoder_shapes};

template std::vector<Score> score(const TranslationModel<EncoderDecoder>&, const ParallelCorpus&,
                                  int64_t);
template std::vector<Score> score(const TranslationModel<RnnAttention>&, const ParallelCorpus&,
                                  int64_t);
template std::vector<std::vector<Hypothesis>> translate(const TranslationModel<EncoderDecoder>&,
                                                        const std::vector<std::vector<int32_t>>&,
                                                        const SearchOptions&, int64_t, int64_t);
template std::vector<std::vector<Hypothesis>> translate(const TranslationModel<RnnAttention>&,
                                                        const std::vector<std::vector<int32_t>>&,
                                                        const SearchOptions&, int64_t, int64_t);

}  // namespace tapestry
