#include "apps/commands/distil/corpus_translator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/least_risk.h"
#include "core/kernels/attention/attention_common.h"
#include "data/corpora/empty_text.h"
#include "data/scores/chrf.h"

namespace tapestry {
namespace {

// The log-probability of a token, the end counted, with the digits that are kept.
double score_of(const Hypothesis& found) {
  constexpr double kDigits = 1e6;
  const auto tokens = static_cast<double>(found.tokens.size() + (found.has_eos ? 1 : 0));
  return std::round(kDigits * found.log_probability / std::max(tokens, 1.0)) / kDigits;
}

// The place of the text that is most similar to the reference, the first of equal ones.
size_t most_similar(const std::vector<ScoredText>& texts, const std::string& reference) {
  const Chrf chrf;
  std::vector<double> sums(chrf.width());
  size_t best = 0;
  double best_score = -1;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = texts[i].text;
    chrf.measure({&text, 1}, {&reference, 1}, sums.data());
    const double score = chrf.score(sums.data());
    if (score > best_score) best = i, best_score = score;
  }
  return best;
}

}  // namespace

double share_of_repeats(const std::vector<int32_t>& tokens) {
  constexpr size_t kRun = 4;
  if (tokens.size() < kRun) return 0;
  std::set<std::array<int32_t, kRun>> seen;
  const size_t count = tokens.size() - kRun + 1;
  for (size_t at = 0; at < count; ++at) {
    seen.insert({tokens[at], tokens[at + 1], tokens[at + 2], tokens[at + 3]});
  }
  return static_cast<double>(count - seen.size()) / static_cast<double>(count);
}

PairsOfCorpora::PairsOfCorpora(const std::vector<CorpusSpec>& specs) : specs_(specs) {
  // A file that is missing is reported before the first one is read.
  for (const CorpusSpec& spec : specs) open_corpus(spec);
}

std::vector<TextPair> PairsOfCorpora::next(int64_t count) {
  std::vector<TextPair> pairs;
  while (std::ssize(pairs) < count) {
    if (reader_ == nullptr) {
      if (next_spec_ == specs_.size()) break;
      reader_ = open_corpus(specs_[next_spec_++]);
    }
    if (TextPair pair; reader_->next(pair)) {
      pairs.push_back(std::move(pair));
    } else {
      counts_.add(reader_->counts());
      reader_.reset();
    }
  }
  return pairs;
}

CorpusTranslator::CorpusTranslator(const Translator& models, SearchOptions search,
                                   int64_t batch_size, const ChoiceOptions& choice, int64_t longest)
    : models_(models),
      n_best_(search.n_best),
      search_(std::move(search)),
      batch_size_(batch_size),
      choice_(choice),
      longest_source_(std::min(longest, models.longest()) - models.rows().source.size()),
      longest_target_(longest - models.rows().target.size()) {
  widen_for_distinct_texts(search_);
}

std::vector<TranslatedSource> CorpusTranslator::translate(const std::vector<TextPair>& pairs,
                                                          int64_t first) const {
  const Tokenizer& tokenizer = *models_.tokenizers().source;
  std::vector<TranslatedSource> results;
  // Attention computes batches of a few tokens in another order of sums. So these sources have
  // batches of their own: bits then do not depend on who shares a batch.
  Batch shortest, others;
  for (const TextPair& pair : pairs) {
    TranslatedSource& one = results.emplace_back();
    one.source = pair.source;
    one.weight = pair.weight;
    std::vector<int32_t> ids = tokenizer.encode(pair.source);
    if (is_empty_text(pair.source, ids)) continue;
    if (std::ssize(ids) > longest_source_) {
      one.left_out = LeftOut::kOverlong;
      continue;
    }
    const bool few = std::ssize(ids) + models_.rows().source.size() <= kFewQueries;
    Batch& batch = few ? shortest : others;
    batch.places.push_back(results.size() - 1);
    batch.sentences.numbers.push_back(first + std::ssize(results) - 1);
    batch.sentences.sources.push_back(std::move(ids));
    models_.choose_words(batch.sentences);
  }
  for (Batch* const batch : {&shortest, &others}) translate(*batch, pairs, results);
  return results;
}

void CorpusTranslator::translate(Batch& batch, const std::vector<TextPair>& pairs,
                                 std::vector<TranslatedSource>& results) const {
  batch.sentences.rows = models_.rows();
  const Tokenizer& tokenizer = *models_.tokenizers().target;
  tapestry::translate(models_.models(), batch.sentences, drawing_options(search_), batch_size_,
                      [&](size_t sentence, std::vector<Hypothesis> found) {
                        const size_t place = batch.places[sentence];
                        choose(best_translations(std::move(found), n_best_, search_, tokenizer),
                               pairs[place].target, batch.sentences.sources[sentence],
                               results[place]);
                      });
}

std::optional<LeftOut> CorpusTranslator::fault_of(const Hypothesis& found, const std::string& text,
                                                  const std::vector<int32_t>& source) const {
  const auto tokens = static_cast<double>(found.tokens.size());
  const double most = choice_.most_times * static_cast<double>(source.size());
  if (is_blank(text)) return LeftOut::kEmpty;
  if (choice_.most_times > 0 && tokens > most) return LeftOut::kTooLong;
  // A model that cannot end goes round in a circle. Refrains and lists repeat what the source does.
  const double repeats = share_of_repeats(found.tokens) - share_of_repeats(source);
  if (choice_.most_repeats < 1 && repeats > choice_.most_repeats) return LeftOut::kRepeats;
  if (found.cut || !found.has_eos) return LeftOut::kCut;
  // The student reads the text, whose tokens may be others than those that were written.
  const auto read = std::ssize(models_.tokenizers().target->encode(text));
  if (read > longest_target_) return LeftOut::kOverlong;
  return std::nullopt;
}

void CorpusTranslator::choose(const std::vector<Hypothesis>& found, const std::string& reference,
                              const std::vector<int32_t>& source, TranslatedSource& one) const {
  for (const Hypothesis& hypothesis : found) {
    ScoredText text{translated_text(*models_.tokenizers().target, hypothesis),
                    score_of(hypothesis)};
    const std::optional<LeftOut> fault = fault_of(hypothesis, text.text, source);
    if (!fault) {
      one.translations.push_back(std::move(text));
    } else if (&hypothesis == &found.front()) {
      one.left_out = *fault;
      one.refused = std::move(text);
    }
  }
  if (choice_.keep_best_by == KeepBestBy::kNone || one.translations.size() < 2) return;
  const size_t best =
      choice_.keep_best_by == KeepBestBy::kChrf ? most_similar(one.translations, reference) : 0;
  one.translations = {std::move(one.translations[best])};
}

}  // namespace tapestry
