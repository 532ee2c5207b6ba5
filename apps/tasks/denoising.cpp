// The task that restores corrupted text (T5, BART).
#include "data/examples/denoising.h"

#include "apps/config/sections.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/pair_kind.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {
namespace {

// T5's number of sentinels (Raffel et al. 2020).
constexpr int64_t kSentinels = 100;

TextCorpus load_held_out_texts(const Config& config, const std::vector<CorpusSpec>& corpora,
                               const TokenizerPair& tokenizers, const LoadContext& context = {}) {
  CorpusOptions whole = config.data.corpus;
  whole.overlong = "truncate";
  return load_text(corpora, *tokenizers.source, whole, context);
}

template <class Model>
DenoisingBatches batches_of(const TranslationModel<Model>& model, const TextCorpus& corpus,
                            const BatchOptions& options, DataPosition start) {
  return DenoisingBatches(corpus, *model.tokenizers.source, model.config.denoising, options, start);
}

template <class Model>
LossSums measure_texts(const TranslationModel<Model>& model, const TextCorpus& texts,
                       const CrossEntropyOptions& options, const RankGroup& group = {}) {
  return loss_over(model, batches_of(model, texts, unshuffled(model.config.batch), {}), options,
                   group);
}

// Samples from the first batch, with the same holes at each validation.
template <class Model>
std::vector<Sample> samples_of(const TranslationModel<Model>& model, const TextCorpus& texts,
                               int64_t wanted) {
  const Config& config = model.config;
  const TokenizerPair tokenizers = with_special_words(model.tokenizers);
  const Tokenizer& tokenizer = *tokenizers.target;
  const DenoisingVocabulary vocabulary(tokenizer, config.denoising);
  TranslationBatch batch = batches_of(model, texts, unshuffled(config.batch), {}).next();
  Sentences sentences{.rows = PairRows(tokenizers)};
  const TextFrame& frame = sentences.rows.source;
  std::vector<Sample> samples;
  for (const int64_t row : shown_examples(wanted, batch.rows)) {
    const int32_t* const ids = batch.source.data<int32_t>() + row * batch.source.shape()[1];
    const int64_t length = batch.source_lengths.data<int32_t>()[row];
    sentences.sources.emplace_back(ids + frame.before.size(), ids + length - frame.after.size());
    const int64_t text = batch.indices.at(static_cast<size_t>(row));
    const auto whole = texts.tokens[text];
    samples.push_back({.given = {{"source", tokenizer.decode(sentences.sources.back())},
                                 {"reference", tokenizer.decode({whole.begin(), whole.end()})}}});
  }
  SearchOptions search = config.generation;
  search.num_beams = 1;
  search.do_sample = false;
  const auto found =
      translate(PairModels{{&model.model}}, sentences, search, config.training.eval_batch_size);
  const bool by_spans = config.denoising.objective == "span_corruption";
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::vector<int32_t>& tokens = found[i].at(0).tokens;
    samples[i].output =
        tokenizer.decode(by_spans ? fill_spans(sentences.sources[i], tokens, vocabulary) : tokens);
  }
  return samples;
}

template <class Model>
struct DenoisingKind : PairKind<Model> {
  using PairKind<Model>::model;

  DenoisingKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    train = load_text(config.data.train, *tokenizers.source, config.data.corpus,
                      load_context(config, report, "train"));
    report_counts("training data", train, report);
    held_out = load_held_out_sets<TextCorpus>(
        config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
          return load_held_out_texts(config, corpora, tokenizers, context);
        });
    model = std::make_unique<TranslationModel<Model>>(config, std::move(tokenizers),
                                                      ModelUse::kTraining);
  }

  DenoisingBatches batches(DataPosition start) const {
    return batches_of(*model, train, model->config.batch, std::move(start));
  }
  std::map<std::string, double> measure(const TextCorpus& texts, const CrossEntropyOptions& options,
                                        const RankGroup& group, ValidationDetails* details) const {
    show_samples(details, [&] { return samples_of(*model, texts, details->wanted); });
    return measure_texts(*model, texts, options, group).metrics();
  }

  TextCorpus train;
  OfHeldOut<TextCorpus> held_out;
};

template <class Model>
Evaluation evaluate_texts(ModelFiles files, const std::string& device,
                          const std::vector<CorpusSpec>& corpora) {
  const auto model =
      TranslationModel<Model>::load(std::move(files), device, "evaluate", kTranslates);
  const TextCorpus texts = load_held_out_texts(model->config, corpora, model->tokenizers);
  warn_of_dropped(texts.counts);
  Evaluation result;
  result.add_losses(measure_texts(*model, texts, {}));
  result.add_count("texts", texts.size());
  return result;
}

}  // namespace

extern const Task kDenoising({.name = "denoising",
                              .abilities = kTranslates | kScoresPairs | kFillsMasks,
                              .metrics = {"nll", "loss", "ppl", "accuracy"},
                              .bind_corpus = bind_text,
                              .sections = {kDenoisingNoise, kGeneration},
                              .needs_mask_piece = true,
                              .sentinels = kSentinels},
                             {{&kTextExamples,
                               {&kEncoderDecoderModel},
                               make_supervised<DenoisingKind<EncoderDecoder>>,
                               evaluate_texts<EncoderDecoder>},
                              {&kTextExamples,
                               {&kRnnAttentionModel},
                               make_supervised<DenoisingKind<RnnAttention>>,
                               evaluate_texts<RnnAttention>}});

}  // namespace tapestry
