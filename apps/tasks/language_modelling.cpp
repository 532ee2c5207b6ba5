// The tasks of language models: causal and masked. Text is joined and cut into blocks, or each
// document is a row of its own.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "apps/checkpoint/model_bundle.h"
#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/models.h"
#include "apps/tasks/prompts/chat.h"
#include "apps/tasks/prompts/prompt_answering.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/text_models.h"
#include "apps/tasks/training_loss.h"
#include "data/batches/batch_rows.h"
#include "data/examples/block_batching.h"
#include "data/examples/document_batching.h"
#include "data/files/utf8.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {

namespace {

BlockOptions block_options(const Config& config, bool shuffle) {
  const bool by_tokens = config.batch.batch_type == "tokens";
  // A model of prompts can be measured on text, too: in blocks as long as its examples.
  const bool joined = examples_of(config).joined;
  const int64_t length = joined ? config.data.block_size : config.data.corpus.max_length;
  const int64_t stride = shuffle || !joined ? 0 : config.data.eval_stride;
  return {.block_size = length,
          .batch_size = by_tokens ? config.batch.batch_size / length : config.batch.batch_size,
          .shuffle = shuffle,
          .seed = config.seed,
          .stride = stride,
          .mix = config.batch.mix,
          .best_fit = joined && config.data.best_fit && stride == 0,
          .document_mask = joined && config.data.document_mask};
}

template <class Batches>
constexpr bool kIsMasked =
    std::is_same_v<Batches, MaskedBlockBatches> || std::is_same_v<Batches, MaskedDocumentBatches>;
template <class Batches>
constexpr bool kIsJoined =
    std::is_same_v<Batches, BlockBatches> || std::is_same_v<Batches, MaskedBlockBatches>;
template <class Batches>
using TextOf = std::conditional_t<kIsJoined<Batches>, TokenStream, TextCorpus>;

template <class Batches>
TextOf<Batches> load_texts(const Config& config, const std::vector<CorpusSpec>& corpora,
                           const Tokenizer& tokenizer, bool trains,
                           const LoadContext& context = {}) {
  if constexpr (kIsJoined<Batches>) {
    return load_token_stream(corpora, tokenizer, context);
  } else {
    CorpusOptions options = config.data.corpus;
    if (!trains) options.overlong = "truncate";
    // A causal model's nll is told for each character.
    options.keep_text = !trains && !kIsMasked<Batches>;
    return load_text(corpora, tokenizer, options, Batches::specials(tokenizer), context);
  }
}

template <class Batches>
Batches batches_of(const TextModel& model, const TextOf<Batches>& text, bool shuffle,
                   DataPosition start = {}) {
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const Config& config = model.config;
  const BatchOptions rows = shuffle ? config.batch : unshuffled(config.batch);
  if constexpr (std::is_same_v<Batches, BlockBatches>) {
    return Batches(text, block_options(config, shuffle), start);
  } else if constexpr (std::is_same_v<Batches, MaskedBlockBatches>) {
    return Batches(text, tokenizer, block_options(config, shuffle), config.masking, start);
  } else if constexpr (kIsMasked<Batches>) {
    return Batches(text, tokenizer, rows, config.masking, start);
  } else {
    return Batches(text, tokenizer, rows, start);
  }
}

// Targets stay on the host: the loss validates them without waiting for the GPU.
LanguageModel::Batch on_device(const TextModel& model, const BlockBatch& batch) {
  const Device device = model.device();
  LanguageModel::Batch moved{batch.ids.to(device), batch.targets,
                             batch.lengths.defined() ? batch.lengths.to(device) : Tensor()};
  std::vector<int32_t> documents;
  for (const auto& row : batch.documents) documents.insert(documents.end(), row.begin(), row.end());
  if (!documents.empty()) moved.sequences = Sequences::of_lengths(documents, device);
  return moved;
}

template <class Batches>
LossSums loss_over(const TextModel& model, const TextOf<Batches>& text,
                   const CrossEntropyOptions& options, const RankGroup& group = {}) {
  return loss_over_epoch(
      batches_of<Batches>(model, text, /*shuffle=*/false), group,
      [&](const BlockBatch& batch) { return model.model.loss(on_device(model, batch), options); });
}

int64_t width_of(const BlockBatch& batch) { return batch.ids.shape()[1]; }

// Tokens that a sample shows of a text: a few lines.
constexpr int64_t kShownTokens = 64;

/// The beginning of a text, and how it goes on.
struct Piece {
  std::vector<int32_t> given, rest;
};

Piece cut(std::span<const int32_t> tokens, int64_t given) {
  const auto place = tokens.begin() + given;
  const auto end = tokens.begin() + std::min(given + kShownTokens, std::ssize(tokens));
  return {{tokens.begin(), place}, {place, end}};
}

std::vector<Piece> pieces_of(const TokenStream& text, int64_t wanted, int64_t longest) {
  const int64_t given = std::min({kShownTokens / 2, longest / 2, text.size() / 2});
  std::vector<Piece> pieces;
  if (given < 1) return pieces;
  for (const int64_t place : shown_examples(wanted, text.size() - given)) {
    pieces.push_back(cut(text.tokens().subspan(static_cast<size_t>(place)), given));
  }
  return pieces;
}

std::vector<Piece> pieces_of(const TextCorpus& text, int64_t wanted, int64_t longest) {
  std::vector<Piece> pieces;
  for (const int64_t document : shown_examples(wanted, text.size())) {
    const auto tokens = text.tokens[document];
    const int64_t given = std::min({kShownTokens / 2, longest / 2, std::ssize(tokens) / 2});
    if (given >= 1) pieces.push_back(cut(tokens, given));
  }
  return pieces;
}

// The model's continuations of pieces of the text, beside the text's own. If the config draws, the
// draws are the same each time.
template <class Text>
std::vector<Sample> continuations(const TextModel& model, const Text& text, int64_t wanted) {
  const Config& config = model.config;
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const bool joined = std::is_same_v<Text, TokenStream>;
  const int64_t row = joined ? config.data.block_size : config.data.corpus.max_length;
  const int64_t longest = std::min(row, config.model.longest_sequence());
  SearchOptions search = config.generation;
  search.num_beams = search.n_best = 1;
  search.min_new_tokens = 0;
  SearchTask task;
  task.eos_id = tokenizer.special().eos;
  task.more_ends = tokenizer.special().more_ends;
  task.banned = tokenizer.special().banned();
  if (!begins_with_eos(config)) task.banned.push_back(task.eos_id);
  if (const auto mask = tokenizer.mask_id()) task.banned.push_back(*mask);
  task.force_eos = false;
  std::vector<Sample> samples;
  for (const Piece& piece : pieces_of(text, wanted, longest)) {
    std::vector<int32_t> prompt = piece.given;
    if (!joined) {
      const std::vector<int32_t> begin = tokenizer.special().beginning_of(prompt);
      prompt.insert(prompt.begin(), begin.begin(), begin.end());
    }
    task.max_lengths.push_back(
        std::max<int64_t>(1, std::min(kShownTokens, longest - std::ssize(prompt))));
    task.prompts.push_back(std::move(prompt));
    samples.push_back({.given = {{"prompt", tokenizer.decode(piece.given)},
                                 {"reference", tokenizer.decode(piece.rest)}}});
  }
  if (samples.empty()) return samples;
  task.sentences = std::ssize(samples);
  LanguageModelSteps steps(model.model);
  const std::vector<Hypothesis> found = generate(steps, task, search);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].output = tokenizer.decode(found[i].tokens);
  }
  return samples;
}

// Rows with holes, and the model's words for them. The holes are the same each time.
template <class Batches>
std::vector<Sample> restored_masks(const TextModel& model, const TextOf<Batches>& text,
                                   int64_t wanted) {
  const auto tokenizer = with_special_words(model.tokenizers.source);
  const BlockBatch batch = batches_of<Batches>(model, text, /*shuffle=*/false).next();
  const int64_t shown = std::min(width_of(batch), kShownTokens);
  std::vector<Sample> samples;
  for (const int64_t row : shown_examples(wanted, batch.rows)) {
    const int64_t length = std::min<int64_t>(
        shown, batch.lengths.defined() ? batch.lengths.data<int32_t>()[row] : shown);
    const std::vector<int32_t> read = ids_of_row(batch.ids, row, length);
    const std::vector<int32_t> targets = ids_of_row(batch.targets, row, length);
    std::vector<int32_t> masked = read, truth = read, output = read;
    for (size_t t = 0; t < read.size(); ++t) {
      if (targets[t] == kNoTarget) continue;
      masked[t] = *tokenizer->mask_id();
      truth[t] = targets[t];
    }
    const Var hidden = model.model.hidden(Tensor::from(read, {1, length}).to(model.device()));
    const Tensor logits = model.model.logits(hidden).value().to(Device{}).to(DType::kFloat64);
    const int64_t vocab = logits.shape()[2];
    for (size_t t = 0; t < read.size(); ++t) {
      if (targets[t] == kNoTarget) continue;
      const double* const scores = logits.data<double>() + static_cast<int64_t>(t) * vocab;
      output[t] = static_cast<int32_t>(std::max_element(scores, scores + vocab) - scores);
    }
    samples.push_back(
        {.given = {{"source", tokenizer->decode(masked)}, {"reference", tokenizer->decode(truth)}},
         .output = tokenizer->decode(output)});
  }
  return samples;
}

void warn_of_few_words(const Config& config, const Tokenizer& tokenizer, const Report& report) {
  if (!config.task->needs_mask_piece || !config.masking.whole_word || !report.warn) return;
  const double share = MaskingVocabulary(tokenizer).word_share();
  constexpr double kFew = 0.05;
  if (share >= kFew) return;
  report.warn(
      fmt::format("masking.whole_word: {:.3g} % of the tokenizer's pieces begin a word, so that "
                  "whole words can hardly be told; those of more than {} tokens are masked token "
                  "by token",
                  100 * share, MaskingOptions::kLongestWord));
}

void report_text(const std::string& what, const TokenStream& text, const Report& report) {
  report(concat(what, ": ", text.documents(), " documents, ", text.characters(), " characters, ",
                text.size(), " tokens", text.from_cache() ? " (cached)" : "", "; ",
                text.counts().summary()));
  report_each_corpus(text.counts(), report);
  warn_of_counts(what, text.counts(), report);
}

template <class Walk>
struct TextKind {
  using Text = TextOf<Walk>;

  TextKind(const Config& config, TokenizerPair given, const Report& report) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    const Tokenizer& tokenizer = *tokenizers.source;
    warn_of_few_words(config, tokenizer, report);
    teacher = read_teacher(config, tokenizers, report);
    train = load_texts<Walk>(config, config.data.train, tokenizer, /*trains=*/true,
                             load_context(config, report, "train"));
    if constexpr (kIsJoined<Walk>) {
      report_text("train data", train, report);
      for (const HeldOut set : kHeldOut) {
        if (corpora_of(config, set).empty()) continue;
        held_out[set] = load_texts<Walk>(config, corpora_of(config, set), tokenizer,
                                         /*trains=*/false, load_context(config, report, set));
        report_text(set == HeldOut::kTest ? "test data" : "valid data", held_out[set], report);
      }
    } else {
      report_counts("training data", train, report);
      held_out = load_held_out_sets<Text>(
          config, report, [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
            return load_texts<Walk>(config, corpora, tokenizer, /*trains=*/false, context);
          });
    }
    model = std::make_unique<TextModel>(config, std::move(tokenizers), ModelUse::kTraining);
  }

  Walk batches(DataPosition start) const {
    return batches_of<Walk>(*model, train, /*shuffle=*/true, std::move(start));
  }
  static UpdateSize size_of(const BlockBatch& batch) {
    return {.tokens = batch.lengths.defined() ? sum_of(batch.lengths) : batch.ids.numel(),
            .targets = static_cast<double>(batch.tokens)};
  }
  CrossEntropy loss(const BlockBatch& batch, const CrossEntropyOptions& options) const {
    return training_loss(model->model, on_device(*model, batch), options, teacher.get());
  }
  std::vector<std::string> texts(const BlockBatch& batch) const {
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return model->tokenizers.source->decode(batch.lengths.defined()
                                                  ? ids_of_row(batch.ids, row, batch.lengths)
                                                  : ids_of_row(batch.ids, row, width_of(batch)));
    });
  }
  std::map<std::string, double> measure(const Text& text, const CrossEntropyOptions& options,
                                        const RankGroup& group, ValidationDetails* details) const {
    show_samples(details, [&] {
      if constexpr (kIsMasked<Walk>)
        return restored_masks<Walk>(*model, text, details->wanted);
      else
        return continuations(*model, text, details->wanted);
    });
    return loss_over<Walk>(*model, text, options, group).metrics();
  }
  int64_t choices() const { return model->tokenizers.source->vocab_size(); }

  std::unique_ptr<TextModel> model;
  std::unique_ptr<Teacher> teacher;  ///< of training.teacher
  Text train;
  OfHeldOut<Text> held_out;
};

/// The length of a text whose tokens are all read; zeros if some are cut off.
struct TextLength {
  int64_t characters = 0;  ///< of Unicode
  int64_t bytes = 0;       ///< in UTF-8
};
TextLength length_of(const TokenStream& text) { return {text.characters(), text.bytes()}; }
TextLength length_of(const TextCorpus& text) {
  TextLength length;
  for (int64_t i = 0; text.counts.truncated == 0 && i < text.text.size(); ++i) {
    length.characters += count_code_points(text.text[i]);
    length.bytes += std::ssize(text.text[i]);
  }
  return length;
}

template <class Batches>
Evaluation evaluate_text(ModelFiles files, const std::string& device,
                         const std::vector<CorpusSpec>& corpora) {
  const auto loaded = TextModel::load(std::move(files), device, "evaluate", kModelsText);
  const TextModel& model = *loaded;
  const auto text =
      load_texts<Batches>(model.config, corpora, *model.tokenizers.source, /*trains=*/false);
  if constexpr (!kIsJoined<Batches>) warn_of_dropped(text.counts);
  const LossSums sums = loss_over<Batches>(model, text, {});
  Evaluation result;
  result.add_losses(sums, "perplexity");
  result.add_count("tokens", sums.tokens());
  const auto [characters, bytes] = length_of(text);
  if (characters > 0) result.add_count("characters", characters);
  // A masked model does not give the text a probability.
  if (characters > 0 && !kIsMasked<Batches>) {
    const double bits = sums.nll().value() * static_cast<double>(sums.tokens()) / std::log(2.0);
    result.add("bits_per_character", bits / static_cast<double>(characters));
    result.add("bits_per_byte", bits / static_cast<double>(bytes));
  }
  return result;
}

// Beam search suits translation; open-ended text is better sampled.
void sample_by_default(Config& config) {
  config.generation.num_beams = 1;
  config.generation.do_sample = true;
}

}  // namespace

extern const Task kClm(
    {.name = "clm",
     .abilities = kContinuesText | kModelsText,
     .metrics = {"nll", "loss", "ppl", "accuracy"},
     .bind_corpus = bind_text_or_prompts,
     .sections = {kGeneration},
     .learns_from_teacher = true,
     .set_defaults = sample_by_default},
    {{&kBlockExamples,
      {&kCausalModel},
      make_supervised<TextKind<BlockBatches>>,
      evaluate_text<BlockBatches>},
     {&kPromptExamples, {&kCausalModel}, make_prompt_task, evaluate_prompts, {"exact_match", "f1"}},
     {&kTalkExamples, {&kCausalModel}, make_chat_task, evaluate_chat},
     {&kDocumentExamples,
      {&kCausalModel},
      make_supervised<TextKind<DocumentBatches>>,
      evaluate_text<DocumentBatches>}});

extern const Task kMlm({.name = "mlm",
                        .abilities = kModelsText | kFillsMasks,
                        .metrics = {"nll", "loss", "ppl", "accuracy"},
                        .bind_corpus = bind_text,
                        .sections = {kMasking},
                        .needs_mask_piece = true},
                       {{&kBlockExamples,
                         {&kMaskedModel},
                         make_supervised<TextKind<MaskedBlockBatches>>,
                         evaluate_text<MaskedBlockBatches>},
                        {&kDocumentExamples,
                         {&kMaskedModel},
                         make_supervised<TextKind<MaskedDocumentBatches>>,
                         evaluate_text<MaskedDocumentBatches>}});

}  // namespace tapestry
