// The task that restores corrupted text (T5, BART).
#include "data/denoising.h"

#include "apps/config/sections.h"
#include "apps/tasks/encoder_decoder_task.h"

namespace tapestry {
namespace {

// T5's number of sentinels (Raffel et al. 2020).
constexpr int64_t kSentinels = 100;

template <class Model>
class DenoisingTask : public EncoderDecoderTask<Model, DenoisingBatches> {
  using Base = EncoderDecoderTask<Model, DenoisingBatches>;
  using Base::loader_, Base::model_;

 public:
  DenoisingTask(const Config& config, TokenizerPair given, DataPosition start,
                const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    CorpusOptions corpus = config.data.corpus;
    train_ = load_text(config.data.train, *tokenizers.source, corpus,
                       load_context(config, report, "train"));
    report(summary_of("training data", train_));
    if (!config.data.valid.empty()) {
      corpus.overlong = "truncate";
      valid_ = load_text(config.data.valid, *tokenizers.source, corpus,
                         load_context(config, report, "valid"));
      report(summary_of("validation data", valid_));
    }
    model_ = std::make_unique<TranslationModel<Model>>(
        config, std::move(tokenizers), training_precision(config, parse_device(config.device)));
    loader_ = std::make_unique<Loader<DenoisingBatches>>(batches(train_, config.batch, start));
  }
  ~DenoisingTask() override { loader_.reset(); }

  int64_t batches_in_epoch() const override {
    return batches(train_, model_->config.batch, {}).batches_in_epoch();
  }

  std::map<std::string, double> validate(const CrossEntropyOptions& options) override {
    if (valid_.size() == 0) return {};
    return this->loss_over(batches(valid_, unshuffled(model_->config.batch), {}), options)
        .metrics();
  }

 private:
  DenoisingBatches batches(const TextCorpus& corpus, const BatchOptions& options,
                           DataPosition start) const {
    return DenoisingBatches(corpus, *model_->tokenizers.source, model_->config.denoising, options,
                            start);
  }

  TextCorpus train_, valid_;
};

}  // namespace

extern const Task kDenoising{{.name = "denoising",
                              .abilities = kTranslates | kScoresPairs | kFillsMasks,
                              .models = {ModelType::kEncoderDecoder, ModelType::kRnnAttention},
                              .metrics = {"nll", "loss", "ppl", "accuracy"},
                              .bind_corpus = bind_text,
                              .sections = {kDenoisingNoise, kGeneration},
                              .needs_mask_piece = true,
                              .sentinels = kSentinels},
                             make_task_of_model<DenoisingTask>,
                             encoder_decoder_parameters,
                             encoder_decoder_case,
                             encoder_decoder_shapes};

}  // namespace tapestry
