// The task that translates.
#include <cmath>
#include <limits>

#include "apps/config/sections.h"
#include "apps/tasks/encoder_decoder_task.h"
#include "apps/tasks/translator.h"
#include "data/metrics.h"

namespace tapestry {
namespace {

template <class Model>
class TranslationTask : public EncoderDecoderTask<Model, TranslationBatches> {
  using Base = EncoderDecoderTask<Model, TranslationBatches>;
  using Base::loader_, Base::model_;

 public:
  TranslationTask(const Config& config, TokenizerPair given, DataPosition start,
                  const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train_ = load_parallel(config.data.train, tokenizers, config.data.corpus,
                           load_context(config, report, "train"));
    report(summary_of("training data", train_));
    if (!config.data.valid.empty()) {
      // Validation keeps every line: a score over a part cannot be compared with other systems.
      CorpusOptions whole = config.data.corpus;
      whole.overlong = "truncate";
      whole.keep_text = true;
      valid_ = load_parallel(config.data.valid, tokenizers, whole,
                             load_context(config, report, "valid"));
      report(summary_of("validation data", valid_));
      if (const int64_t dropped = valid_.counts.total_dropped(); dropped > 0) {
        report(concat("warning: validation leaves out ", dropped,
                      " pairs; its figures are not those of the whole files"));
      }
    }
    const EpochPlans plans = plans_of(train_, config.batch);
    report(concat(
        "batches",
        plans.windows(0) > 1 ? concat(" of a window (1/", plans.windows(0), " of the data)") : "",
        ": ", padding_of(train_, plans.plan(0, 0)).summary()));
    model_ = std::make_unique<TranslationModel<Model>>(
        config, std::move(tokenizers), training_precision(config, parse_device(config.device)));
    loader_ = std::make_unique<TranslationLoader>(train_, config.batch, start);
  }
  // The loader's thread reads the corpus, which is destroyed before the base class.
  ~TranslationTask() override { loader_.reset(); }

  int64_t batches_in_epoch() const override {
    return TranslationBatches(train_, model_->config.batch).batches_in_epoch();
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
    Sentences sentences;
    std::vector<std::string> hypotheses;
    for (int64_t i = 0; i < valid_.size(); ++i) {
      sentences.sources.emplace_back(valid_.source[i].begin(), valid_.source[i].end());
    }
    SearchOptions search = config.generation;
    search.num_beams = config.evaluation.num_beams;
    search.do_sample = false;
    const PairModels models{{&model_->model}};
    for (const auto& best : translate(models, sentences, search, config.training.eval_batch_size)) {
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

}  // namespace tapestry
