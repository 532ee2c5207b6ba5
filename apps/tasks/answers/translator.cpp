#include "apps/tasks/answers/translator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "apps/tasks/answers/shortlists.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/pair_kind.h"
#include "core/base/interruption.h"
#include "data/files/utf8.h"
#include "data/tokenizers/special_words.h"

namespace tapestry {
namespace {

// Rows of ids, filled up to the longest.
Tensor padded(const std::vector<std::vector<int32_t>>& rows, int32_t filler) {
  int64_t width = 0;
  for (const auto& row : rows) width = std::max(width, std::ssize(row));
  Tensor ids = Tensor::full({std::ssize(rows), width}, filler, DType::kInt32);
  int32_t* out = ids.data<int32_t>();
  for (const auto& row : rows) {
    std::copy(row.begin(), row.end(), out);
    out += width;
  }
  return ids;
}

// Some of the sentences, as the models read them.
struct SourceBatch {
  std::vector<size_t> indices;  // of the sentences
  Tensor ids, lengths;          // in their frames
};

// Batches of similar length, the longest first.
std::vector<SourceBatch> batches_of(const std::vector<std::vector<int32_t>>& sources,
                                    const PairRows& around, int64_t batch_sentences,
                                    Device device) {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  std::vector<SourceBatch> batches;
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(batch_sentences)) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch_sentences));
    SourceBatch batch;
    std::vector<std::vector<int32_t>> rows;
    std::vector<int32_t> lengths;
    for (size_t i = begin; i < end; ++i) {
      batch.indices.push_back(order[i]);
      rows.push_back(in_frame(around.source, sources[order[i]]));
      lengths.push_back(static_cast<int32_t>(rows.back().size()));
    }
    batch.ids = padded(rows, around.source_filler).to(device);
    batch.lengths = Tensor::from(lengths, {std::ssize(lengths)}).to(device);
    batches.push_back(std::move(batch));
  }
  return batches;
}

// Chinese, Japanese, Thai, Lao, Khmer and Burmese put no spaces between words.
bool is_of_spaced_word(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kUnspaced[] = {
      {0x0E00, 0x0EFF}, {0x1000, 0x109F}, {0x1780, 0x17FF}, {0x2E80, 0x312F},
      {0x31A0, 0x31FF}, {0x3400, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x3FFFF}};
  return is_word_character(c) && std::ranges::none_of(kUnspaced, [c](const auto& range) {
           return range.first <= c && c <= range.second;
         });
}

TokenEdges token_edges(const Tokenizer& tokenizer) {
  TokenEdges edges;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::u32string text =
        tokenizer.is_special(id) ? std::u32string() : decode_utf8(tokenizer.decode({id}));
    const bool begins = !text.empty() && is_of_spaced_word(text.front());
    edges.continues_word.push_back(begins && !tokenizer.starts_word(id));
    edges.ends_in_word.push_back(!text.empty() && is_of_spaced_word(text.back()));
  }
  return edges;
}

}  // namespace

void drop_front(Hypothesis& hypothesis, int64_t count) {
  const auto drop = [count](auto& list) {
    list.erase(list.begin(), list.begin() + std::min(count, std::ssize(list)));
  };
  drop(hypothesis.tokens);
  drop(hypothesis.token_log_probabilities);
}

Translator::Translator(const ModelChoice& choice, const std::string& device, const std::string& who,
                       Ability ability, const LanguageOptions& languages) {
  models_.weights = ensemble_weights(choice.weights, choice.paths.size());
  const auto load = [&]<class Model>(ModelFiles files) {
    auto bundle =
        TranslationModel<Model>::load(std::move(files), device, who, ability, choice.format);
    const int64_t longest = bundle->config.model.longest_sequence();
    longest_ = bundles_.empty() ? longest : std::min(longest_, longest);
    if (bundles_.empty()) {
      tokenizers_ = with_languages(bundle->tokenizers, languages);
      if (bundle->config.task->needs_mask_piece) tokenizers_ = with_special_words(tokenizers_);
      rows_ = PairRows(tokenizers_);
    }
    models_.models.emplace_back(&bundle->model);
    bundles_.emplace_back(std::move(bundle));
  };
  for (ModelFiles& files : read_model_files(choice.paths)) {
    if (files.config.model_type == ModelType::kRnnAttention) {
      load.operator()<RnnAttention>(std::move(files));
    } else {
      load.operator()<EncoderDecoder>(std::move(files));
    }
  }
  limit_sources(std::nullopt);
}

void Translator::limit_sources(std::optional<int64_t> tokens) {
  constexpr int64_t kMostTokens = 2048;
  longest_source_ =
      std::min(tokens.value_or(std::max(kMostTokens, config().model.max_position_embeddings)),
               longest_ - rows_.source.size());
}

void Translator::use_shortlist(const SearchOptions& options) {
  shortlist_.reset();
  if (!options.shortlist.empty()) shortlist_ = read_shortlist(options, tokenizers_);
}

void Translator::choose_words(Sentences& sentences) const {
  if (!shortlist_) return;
  const auto& prefixes = sentences.prefixes;
  std::vector<int32_t> forced = rows_.target.before;
  if (prefixes.size() == sentences.sources.size()) {
    forced.insert(forced.end(), prefixes.back().begin(), prefixes.back().end());
  }
  if (sentences.constraints.size() == sentences.sources.size()) {
    for (const auto& phrase : sentences.constraints.back()) {
      forced.insert(forced.end(), phrase.begin(), phrase.end());
    }
  }
  sentences.chosen.push_back(shortlist_->of(sentences.sources.back(), forced));
}

const TokenEdges& Translator::edges() const {
  std::call_once(edges_made_, [this] { edges_ = token_edges(*tokenizers_.target); });
  return edges_;
}

std::vector<int32_t>::const_iterator Translator::never_written(
    const std::vector<int32_t>& ids) const {
  return std::ranges::find_if(ids, [&](int32_t id) {
    return id == rows_.eos || std::ranges::find(rows_.banned, id) != rows_.banned.end();
  });
}

const Config& Translator::config() const {
  return std::visit([](const auto& bundle) -> const Config& { return bundle->config; },
                    bundles_.at(0));
}

std::vector<int32_t> Translator::encode_source(const std::string& line, int64_t number) const {
  std::vector<int32_t> ids = tokenizers_.source->encode(line);
  cut_source(ids, number);
  return ids;
}

void Translator::cut_source(std::vector<int32_t>& ids, int64_t number) const {
  cut_long_line(ids, longest_source_, place_of_line(number));
}

void translate(const PairModels& models, const Sentences& sentences, const SearchOptions& options,
               int64_t sentences_at_once, const SentenceDone& done) {
  if (sentences.sources.empty()) return;
  const PairRows& around = sentences.rows;
  // Sentences that are searched together have similar lengths, and the last ones to join are short.
  std::vector<size_t> order(sentences.sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return sentences.sources[i].size(); });
  std::vector<std::vector<int32_t>> rows;
  std::vector<int32_t> lengths;
  TranslationInput input;
  input.ids = {around.start, around.eos, around.banned, around.more_ends};
  input.log_probabilities = sentences.log_probabilities;
  input.token_log_probabilities = sentences.token_log_probabilities;
  input.edges = sentences.edges;
  input.sentences_at_once = sentences_at_once;
  for (const size_t i : order) {
    rows.push_back(in_frame(around.source, sentences.sources[i]));
    lengths.push_back(static_cast<int32_t>(rows.back().size()));
    input.sequence_ids.push_back(sentences.numbers.empty() ? static_cast<int64_t>(i)
                                                           : sentences.numbers[i]);
    if (!sentences.chosen.empty()) input.chosen.push_back(sentences.chosen.at(i));
    if (!sentences.constraints.empty()) input.constraints.push_back(sentences.constraints.at(i));
    const std::vector<int32_t>& begin = around.target.before;
    if (sentences.prefixes.empty() && begin.empty()) continue;
    input.prefixes.push_back(begin);
    if (sentences.prefixes.empty()) continue;
    const std::vector<int32_t>& more = sentences.prefixes.at(i);
    input.prefixes.back().insert(input.prefixes.back().end(), more.begin(), more.end());
  }
  const Device device = device_of(models);
  input.source = padded(rows, around.source_filler).to(device);
  input.lengths = Tensor::from(lengths, {std::ssize(lengths)}).to(device);
  const int64_t forced = std::ssize(around.target.before);
  Progress progress("translating", std::ssize(order), "sentences");
  tapestry::translate(models, input, options, [&](int64_t place, std::vector<Hypothesis> found) {
    for (Hypothesis& hypothesis : found) drop_front(hypothesis, forced);
    progress.add();
    stop_if_asked();
    done(order[static_cast<size_t>(place)], std::move(found));
  });
}

std::vector<std::vector<Hypothesis>> translate(const PairModels& models, const Sentences& sentences,
                                               const SearchOptions& options,
                                               int64_t sentences_at_once) {
  std::vector<std::vector<Hypothesis>> results(sentences.sources.size());
  translate(models, sentences, options, sentences_at_once,
            [&](size_t sentence, std::vector<Hypothesis> found) {
              results[sentence] = std::move(found);
            });
  return results;
}

std::vector<Score> score(const PairModels& models, const ParallelCorpus& pairs,
                         int64_t batch_sentences) {
  const std::vector<double> weights = ensemble_weights(models.weights, models.models.size());
  const Device device = device_of(models);
  std::vector<Score> scores(static_cast<size_t>(pairs.size()));
  BatchOptions in_order;
  in_order.batch_type = "sentences";
  in_order.batch_size = batch_sentences;
  in_order.shuffle = false;
  const EpochPlan plan(pairs, in_order, 0);
  Progress progress("scoring", plan.batches(), "batches");
  for (int64_t i = 0; i < plan.batches(); ++i, progress.add()) {
    const TranslationBatch batch = make_translation_batch(pairs, plan.batch(i));
    const EncoderDecoder::Batch inputs = on_device(batch, device);
    std::vector<std::vector<double>> members;
    for (const PairModel& model : models.models) {
      const Var logits =
          pair_logits(model, {inputs.source, inputs.source_lengths, inputs.target_in});
      members.push_back(target_log_probabilities(logits, batch.target_out));
    }
    const std::vector<double> values = mean_log_probabilities(members, weights);
    const int64_t length = batch.target_out.shape()[1];
    for (int64_t row = 0; row < batch.rows; ++row) {
      Score& score = scores[static_cast<size_t>(batch.indices[static_cast<size_t>(row)])];
      score.tokens = batch.target_lengths.data<int32_t>()[row];
      score.ids = ids_of_row(batch.target_out, row, score.tokens);
      const auto first = values.begin() + row * length;
      score.each.assign(first, first + score.tokens);
      score.log_probability = std::accumulate(score.each.begin(), score.each.end(), 0.0);
    }
  }
  return scores;
}

std::vector<Tensor> source_attention(const PairModels& models,
                                     const std::vector<std::vector<int32_t>>& sources,
                                     const std::vector<std::vector<int32_t>>& targets,
                                     int64_t layer, int64_t batch_sentences,
                                     const PairRows& around) {
  const std::vector<double> weights = ensemble_weights(models.weights, models.models.size());
  const Device device = device_of(models);
  std::vector<Tensor> results(sources.size());
  // Rows of the fixed beginning, which is not part of the answer.
  const int64_t skipped_rows = std::ssize(around.target.before);
  const int64_t skipped_columns = std::ssize(around.source.before);
  for (const SourceBatch& batch : batches_of(sources, around, batch_sentences, device)) {
    std::vector<std::vector<int32_t>> rows;
    for (const size_t i : batch.indices) {
      rows.push_back(in_frame(around.target, targets[i]));
      rows.back().insert(rows.back().begin(), around.start);
      rows.back().pop_back();
      results[i] =
          Tensor::zeros({std::ssize(targets[i]) + 1, std::ssize(sources[i]) + 1}, DType::kFloat64);
    }
    const PairInput input{batch.ids, batch.lengths, padded(rows, around.target_filler).to(device)};
    for (size_t m = 0; m < weights.size(); ++m) {
      const Tensor found = tapestry::source_attention(models.models[m], input, layer);
      const int64_t height = found.shape()[1], width = found.shape()[2];
      for (size_t row = 0; row < rows.size(); ++row) {
        Tensor& sum = results[batch.indices[row]];
        for (int64_t t = 0; t < sum.shape()[0]; ++t) {
          const double* from = found.data<double>() +
                               (static_cast<int64_t>(row) * height + t + skipped_rows) * width +
                               skipped_columns;
          double* to = sum.data<double>() + t * sum.shape()[1];
          for (int64_t s = 0; s < sum.shape()[1]; ++s) to[s] += weights[m] * from[s];
        }
      }
    }
  }
  return results;
}

}  // namespace tapestry
