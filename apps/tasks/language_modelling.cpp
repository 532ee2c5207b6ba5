#include "apps/tasks/language_modelling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "apps/config/sections.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/micro_batches.h"
#include "apps/tasks/models.h"
#include "apps/tasks/prompt_answering.h"
#include "data/block_batching.h"
#include "data/empty_text.h"
#include "data/loader.h"
#include "data/special_words.h"
#include "nn/ensemble.h"

namespace tapestry {

extern const Task kClm;

namespace {

// Targets stay on the host: the loss validates them without waiting for the GPU.
LanguageModel::Batch on_device(const BlockBatch& batch, Device device) {
  return {batch.ids.to(device), batch.targets,
          batch.lengths.defined() ? batch.lengths.to(device) : Tensor()};
}

BlockOptions block_options(const Config& config, bool shuffle) {
  const bool by_tokens = config.batch.batch_type == "tokens";
  // A model of prompts can be measured on text, too: in blocks as long as its examples.
  const int64_t length =
      reads_blocks(config) ? config.data.block_size : config.data.corpus.max_length;
  return {.block_size = length,
          .batch_size = by_tokens ? config.batch.batch_size / length : config.batch.batch_size,
          .shuffle = shuffle,
          .seed = config.seed,
          .mix = config.batch.mix};
}

/// Calls f(batches) with the batches of the task over a text.
template <class F>
auto with_batches(const TextModel& model, const TokenStream& text, bool shuffle, DataPosition start,
                  F f) {
  const BlockOptions options = block_options(model.config, shuffle);
  if (model.config.task == &kClm) return f(BlockBatches(text, options, start));
  return f(
      MaskedBlockBatches(text, *model.tokenizers.source, options, model.config.masking, start));
}

LossSums loss_over(const TextModel& model, const TokenStream& text,
                   const CrossEntropyOptions& options, const RankGroup& group = {}) {
  return with_batches(model, text, /*shuffle=*/false, {}, [&](auto batches) {
    return loss_over_epoch(std::move(batches), group, [&](const BlockBatch& batch) {
      return model.model.loss(on_device(batch, model.device()), options);
    });
  });
}

// Tokens that a sample shows of a text: a few lines.
constexpr int64_t kShownTokens = 64;

// The model's continuations of pieces of the text, beside the text's own. If the config draws, the
// draws are the same each time.
std::vector<Sample> continuations(const TextModel& model, const TokenStream& text, int64_t wanted) {
  const Config& config = model.config;
  const Tokenizer& tokenizer = *model.tokenizers.source;
  const int64_t block = std::min(config.data.block_size, config.model.longest_sequence());
  const int64_t given = std::min({kShownTokens / 2, block / 2, text.size() / 2});
  if (given < 1) return {};
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
  for (const int64_t place : shown_examples(wanted, text.size() - given)) {
    const auto tokens = text.tokens().subspan(static_cast<size_t>(place));
    const auto end = tokens.begin() + std::min<int64_t>(given + kShownTokens, std::ssize(tokens));
    task.prompts.emplace_back(tokens.begin(), tokens.begin() + given);
    task.max_lengths.push_back(std::min(kShownTokens, block - given));
    samples.push_back({.given = {{"prompt", tokenizer.decode(task.prompts.back())},
                                 {"reference", tokenizer.decode({tokens.begin() + given, end})}}});
  }
  task.sentences = std::ssize(samples);
  LanguageModelSteps steps(model.model);
  const std::vector<Hypothesis> found = generate(steps, task, search);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].output = tokenizer.decode(found[i].tokens);
  }
  return samples;
}

// Blocks with holes, and the model's words for them. The holes are the same each time.
std::vector<Sample> restored_masks(const TextModel& model, const TokenStream& text,
                                   int64_t wanted) {
  const auto tokenizer = with_special_words(model.tokenizers.source);
  const BlockBatch batch =
      with_batches(model, text, /*shuffle=*/false, {}, [](auto batches) { return batches.next(); });
  const int64_t width = batch.ids.shape()[1], shown = std::min(width, kShownTokens);
  std::vector<Sample> samples;
  for (const int64_t row : shown_examples(wanted, batch.rows)) {
    const int64_t length = std::min<int64_t>(
        shown, batch.lengths.defined() ? batch.lengths.data<int32_t>()[row] : shown);
    const int32_t* const ids = batch.ids.data<int32_t>() + row * width;
    const int32_t* const targets = batch.targets.data<int32_t>() + row * width;
    std::vector<int32_t> read(ids, ids + length), masked = read, truth = read, output = read;
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

class LanguageModellingTask : public TrainingTask {
 public:
  LanguageModellingTask(const Config& config, TokenizerPair given, const TaskPlace& place,
                        const Report& report)
      : group_(place.group), position_(place.start) {
    TokenizerPair tokenizers = prepare_tokenizers(config, std::move(given), report);
    const auto read = [&](const std::vector<CorpusSpec>& corpora, const char* name) {
      TokenStream text =
          load_token_stream(corpora, *tokenizers.source, load_context(config, report, name));
      report(concat(name, " data: ", text.documents(), " documents, ", text.characters(),
                    " characters, ", text.size(), " tokens", text.from_cache() ? " (cached)" : "",
                    "; ", text.counts().summary()));
      report_each_corpus(text.counts(), report);
      warn_of_counts(concat(name, " data"), text.counts(), report);
      return text;
    };
    if (config.task->needs_mask_piece && config.masking.whole_word) {
      const double share = MaskingVocabulary(*tokenizers.source).word_share();
      constexpr double kFew = 0.05;
      if (share < kFew && report.warn) {
        report.warn(fmt::format(
            "masking.whole_word: {:.3g} % of the tokenizer's pieces begin a word, so that whole "
            "words can hardly be told; those of more than {} tokens are masked token by token",
            100 * share, MaskingOptions::kLongestWord));
      }
    }
    train_ = read(config.data.train, "train");
    if (!config.data.valid.empty()) {
      held_out_[HeldOut::kValidation] = read(config.data.valid, "valid");
    }
    if (!config.data.test.empty()) held_out_[HeldOut::kTest] = read(config.data.test, "test");
    model_ = std::make_unique<TextModel>(config, std::move(tokenizers), ModelUse::kTraining);
    with_batches(*model_, train_, /*shuffle=*/true, place.start, [&](auto batches) {
      auto loader = std::make_shared<Loader<decltype(batches)>>(std::move(batches), place.share);
      next_ = [loader] {
        auto item = loader->next();
        return std::pair(std::move(item.batch), item.position);
      };
    });
  }

  ParamStore& parameters() override { return model_->store; }

  UpdateSize next_update(int64_t micro_batches) override {
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      auto [batch, position] = next_();
      append_in_parts(std::move(batch), model_->config.training.splits, update_);
      position_ = position;
    }
    UpdateSize size{.micro_batches = std::ssize(update_)};
    for (const BlockBatch& batch : update_) {
      size.tokens += batch.ids.numel();
      size.targets += static_cast<double>(batch.tokens);
    }
    return size;
  }
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    return model_->model.loss(on_device(update_.at(static_cast<size_t>(i)), model_->device()),
                              options);
  }
  std::vector<std::string> texts(int64_t i) const override {
    return texts_of(update_.at(static_cast<size_t>(i)), *model_->tokenizers.source);
  }
  DataPosition position() const override { return position_; }
  int64_t batches_in_epoch(const DataPosition& place) const override {
    return with_batches(*model_, train_, /*shuffle=*/true, place,
                        [](const auto& batches) { return batches.batches_in_epoch(); });
  }

  // Each token is one: the text may be a single document.
  int64_t examples(HeldOut set) const override { return held_out_[set].size(); }
  std::map<std::string, double> measure(HeldOut set, const CrossEntropyOptions& options,
                                        ValidationDetails* details) override {
    show_samples(details, [&] {
      const auto samples = model_->config.task == &kClm ? continuations : restored_masks;
      return samples(*model_, held_out_[set], details->wanted);
    });
    return loss_over(*model_, held_out_[set], options, group_).metrics();
  }
  double uniform_nll() const override {
    return std::log(static_cast<double>(model_->tokenizers.source->vocab_size()));
  }
  std::map<std::string, std::string> files() const override { return model_->files(); }

 private:
  const RankGroup group_;
  std::unique_ptr<TextModel> model_;
  TokenStream train_;
  OfHeldOut<TokenStream> held_out_;
  std::function<std::pair<BlockBatch, DataPosition>()> next_;
  DataPosition position_;
  std::vector<BlockBatch> update_;
};

std::unique_ptr<TrainingTask> make(const Config& config, TokenizerPair tokenizers,
                                   const TaskPlace& place, const Report& report) {
  if (reads_prompts(config)) return make_prompt_task(config, std::move(tokenizers), place, report);
  return std::make_unique<LanguageModellingTask>(config, std::move(tokenizers), place, report);
}

Evaluation evaluate(ModelFiles files, const std::string& device,
                    const std::vector<CorpusSpec>& corpora) {
  const auto model = TextModel::load(std::move(files), device, "evaluate", kModelsText);
  if (corpora.front().kind() == CorpusSpec::Kind::kPrompted) {
    return evaluate_prompts(*model, corpora);
  }
  const TokenStream text = load_token_stream(corpora, *model->tokenizers.source);
  const TextQuality quality = text_quality(*model, text);
  Evaluation result;
  result.add("nll", quality.nll / static_cast<double>(quality.tokens));
  result.add("perplexity", quality.perplexity());
  result.add_percent("accuracy", quality.accuracy);
  result.add_count("tokens", quality.tokens);
  result.add_count("characters", text.characters());
  if (quality.bits_per_character > 0) {
    result.add("bits_per_character", quality.bits_per_character);
  }
  return result;
}

// Beam search suits translation; open-ended text is better sampled.
void sample_by_default(Config& config) {
  config.generation.num_beams = 1;
  config.generation.do_sample = true;
}

}  // namespace

extern const Task kClm({.name = "clm",
                        .abilities = kContinuesText | kModelsText,
                        .metrics = {"nll", "loss", "ppl", "accuracy"},
                        .prompt_metrics = {"exact_match"},
                        .bind_corpus = bind_text_or_prompts,
                        .sections = {kGeneration},
                        .reads_blocks = true,
                        .set_defaults = sample_by_default},
                       {&kCausalModel}, make, evaluate);

extern const Task kMlm({.name = "mlm",
                        .abilities = kModelsText | kFillsMasks,
                        .metrics = {"nll", "loss", "ppl", "accuracy"},
                        .bind_corpus = bind_text,
                        .sections = {kMasking},
                        .reads_blocks = true,
                        .needs_mask_piece = true},
                       {&kMaskedModel}, make, evaluate);

double TextQuality::perplexity() const { return std::exp(nll / static_cast<double>(tokens)); }

TextQuality text_quality(const TextModel& model, const TokenStream& text) {
  const LossSums sums = loss_over(model, text, {});
  TextQuality quality{
      .nll = sums.nll(), .tokens = sums.tokens(), .accuracy = sums.metrics().at("accuracy")};
  if (model.config.task == &kClm) {
    quality.bits_per_character =
        sums.nll() / std::log(2.0) / static_cast<double>(text.characters());
  }
  return quality;
}

bool begins_with_eos(const Config& config) { return config.data.train.at(0).documents != "file"; }

TextModels::TextModels(const ModelChoice& choice, const std::string& device, const std::string& who,
                       Ability ability)
    : weights(ensemble_weights(choice.weights, choice.paths.size())) {
  for (ModelFiles& files : read_model_files(choice.paths)) {
    const std::string folder = files.folder;
    members.push_back(TextModel::load(std::move(files), device, who, ability, choice.format));
    if (begins_with_eos(members.back()->config) != begins_with_eos(first().config)) {
      fail(ErrorKind::kData, '[', who, "] ", choice.paths[0], " and ", folder,
           " must both have learnt from one long document, or both from several.");
    }
  }
}

int64_t TextModels::positions() const {
  int64_t least = first().config.model.max_position_embeddings;
  for (const auto& model : members) {
    least = std::min(least, model->config.model.max_position_embeddings);
  }
  return least;
}

int64_t TextModels::longest() const {
  int64_t least = first().config.model.longest_sequence();
  for (const auto& model : members) {
    least = std::min(least, model->config.model.longest_sequence());
  }
  return least;
}

bool TextModels::reads_prefixes() const {
  return std::ranges::any_of(members,
                             [](const auto& model) { return model->config.model.prefix_lm; });
}

std::unique_ptr<NextToken> TextModels::steps() const {
  std::vector<std::unique_ptr<NextToken>> each;
  each.reserve(members.size());
  for (const auto& model : members) {
    each.push_back(std::make_unique<LanguageModelSteps>(model->model));
  }
  return ensemble_of(std::move(each), weights);
}

std::vector<const Trunk*> TextModels::trunks() const {
  std::vector<const Trunk*> all;
  all.reserve(members.size());
  for (const auto& model : members) all.push_back(&model->model.trunk);
  return all;
}

std::vector<int32_t> ids_to_score(const TextModels& models, const std::string& line,
                                  int64_t number) {
  std::vector<int32_t> ids = models.tokenizer().encode(line);
  if (is_empty_text(line, ids)) ids.clear();
  if (begins_with_eos(models.first().config)) {
    const SpecialIds& special = models.tokenizer().special();
    const bool ends = special.has_end(ids);
    const std::vector<int32_t> begin = special.beginning_of(ids);
    ids.insert(ids.begin(), begin.begin(), begin.end());
    if (!ends) ids.push_back(special.eos);
  }
  // The last one is only predicted.
  const int64_t longest = models.longest();
  if (std::ssize(ids) - 1 > longest) cut_long_line(ids, longest + 1, place_of_line(number));
  return ids;
}

std::vector<Score> score_texts(const TextModels& models,
                               const std::vector<std::vector<int32_t>>& texts) {
  std::vector<Score> scores;
  for (const std::vector<int32_t>& ids : texts) {
    const auto count = static_cast<int64_t>(ids.size()) - 1;
    Score score{.tokens = std::max<int64_t>(0, count)};
    if (count > 0) {
      const Tensor in = Tensor::from(std::vector(ids.begin(), ids.end() - 1), {1, count});
      const Tensor out = Tensor::from(std::vector(ids.begin() + 1, ids.end()), {1, count});
      std::vector<std::vector<double>> each;
      for (const auto& model : models.members) {
        const Var hidden = model->model.hidden(in.to(model->device()));
        each.push_back(target_log_probabilities(model->model.logits(hidden), out));
      }
      const auto values = mean_log_probabilities(each, models.weights);
      score.log_probability = std::accumulate(values.begin(), values.end(), 0.0);
    }
    scores.push_back(score);
  }
  return scores;
}

std::vector<std::vector<Fill>> fill_masks(const TextModel& model, const std::vector<int32_t>& ids,
                                          int64_t top_k) {
  const auto count = static_cast<int64_t>(ids.size());
  const Var hidden = model.model.hidden(Tensor::from(ids, {1, count}).to(model.device()));
  const Tensor probabilities =
      softmax(model.model.logits(hidden)).value().to(Device{}).to(DType::kFloat64);
  const int64_t vocab = probabilities.shape()[2];
  std::vector<std::vector<Fill>> fills;
  for (int64_t t = 0; t < count; ++t) {
    if (ids[static_cast<size_t>(t)] != *model.tokenizers.source->mask_id()) continue;
    const double* const row = probabilities.data<double>() + t * vocab;
    std::vector<Fill> guesses;
    for (int32_t id = 0; id < vocab; ++id) guesses.push_back({id, row[id]});
    std::stable_sort(guesses.begin(), guesses.end(),
                     [](const Fill& a, const Fill& b) { return a.probability > b.probability; });
    guesses.resize(static_cast<size_t>(std::min(top_k, vocab)));
    fills.push_back(std::move(guesses));
  }
  return fills;
}

}  // namespace tapestry
