#include "data/examples/denoising.h"

#include <algorithm>
#include <cmath>

#include "core/base/draws.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

// `items` as a sum of `parts` numbers of at least `least` each. All such sums are equally likely
// (selection sampling of the cuts, Knuth volume 2, algorithm 3.4.2 S).
std::vector<int64_t> random_parts(RowDraws& draws, int64_t items, int64_t parts, int64_t least) {
  const int64_t shift = 1 - least;
  items += shift * parts;
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  for (int64_t place = 1; place < items; ++place) {
    const int64_t cuts_left = parts - 1 - static_cast<int64_t>(sizes.size());
    if (draws.below(items - place) >= cuts_left) continue;
    sizes.push_back(place - begin - shift);
    begin = place;
  }
  sizes.push_back(items - begin - shift);
  return sizes;
}

// Knuth's product of uniform draws, which is fast for a small mean.
int64_t random_poisson(RowDraws& draws, double mean) {
  const double bound = std::exp(-mean);
  int64_t count = 0;
  for (double product = draws.uniform(); product > bound; product *= draws.uniform()) ++count;
  return count;
}

int64_t hidden_tokens(int64_t tokens, const DenoisingOptions& options) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * options.density()));
}

void append(std::vector<int32_t>& out, std::span<const int32_t> tokens, int64_t begin,
            int64_t count) {
  const auto part = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  out.insert(out.end(), part.begin(), part.end());
}

void check_fits(std::span<const int32_t> tokens, const DenoisingOptions& options, int64_t text) {
  if (static_cast<int64_t>(tokens.size()) < options.max_length) return;
  fail(ErrorKind::kConfig, "[data] max_length of ", options.max_length,
       " must hold every text and eos, text ", text + 1, " has ", tokens.size(), " tokens.");
}

}  // namespace

double DenoisingOptions::density() const {
  if (noise_density > 0) return noise_density;
  return objective == "infilling" ? 0.3 : 0.15;
}

void DenoisingOptions::validate(const OptionReport& report) const {
  report.expect_one_of("objective", objective, kObjectives);
  report.expect(noise_density >= 0 && noise_density < 1, "noise_density",
                "must be in [0, 1) (0: the objective's own), got ", noise_density, '.');
  report.expect(mean_span_length >= 1 && mean_span_length <= kLongestMeanSpan, "mean_span_length",
                "must be in [1, ", kLongestMeanSpan, "], got ", mean_span_length, '.');
  constexpr int64_t kLeast = 4;  // two sentinels, the token between them, and eos
  report.expect(max_length >= kLeast, "max_length", "must be at least ", kLeast,
                " for denoising, got ", max_length, '.');
}

DenoisingVocabulary::DenoisingVocabulary(const Tokenizer& tokenizer,
                                         const DenoisingOptions& options) {
  options.validate();
  for (int64_t i = 0; i < tokenizer.sentinels(); ++i) {
    sentinels.push_back(*tokenizer.sentinel_id(i));
  }
  if (options.objective == "span_corruption" && sentinels.size() < 2) {
    fail(ErrorKind::kConfig, "[data] span_corruption needs a tokenizer with 2 sentinels or more, ",
         "got ", sentinels.size(), '.');
  }
  if (options.objective == "infilling" && !tokenizer.mask_id()) {
    fail(ErrorKind::kConfig, "[data] infilling needs a tokenizer with the piece ", kMaskPiece,
         ", got one without.");
  }
  mask_id = tokenizer.mask_id().value_or(tokenizer.special().unk.value_or(kNoTarget));
}

NoisedText span_corrupt(std::span<const int32_t> tokens, const DenoisingVocabulary& vocabulary,
                        const DenoisingOptions& options, const PhiloxKey& key, int64_t text) {
  check_fits(tokens, options, text);
  const auto all = static_cast<int64_t>(tokens.size());
  const auto most_spans = static_cast<int64_t>(vocabulary.sentinels.size()) - 1;
  if (all == 0) return {{}, {vocabulary.sentinels[0]}};
  const auto spans_of = [&](int64_t hidden) {
    const auto wanted = std::llround(static_cast<double>(hidden) / options.mean_span_length);
    return std::clamp<int64_t>(wanted, 1, std::min({hidden, most_spans, all - hidden + 1}));
  };
  int64_t hidden = std::min(hidden_tokens(all, options), std::max<int64_t>(1, all - 1));
  // The target: hidden tokens, a sentinel for each span, the final one, and bos or eos.
  while (hidden + spans_of(hidden) + 2 > options.max_length) --hidden;
  const int64_t spans = spans_of(hidden);

  RowDraws draws(key, text);
  const auto lengths = random_parts(draws, hidden, spans, 1);
  // At least one token separates two spans. There may be none before the first and after the last.
  auto gaps = random_parts(draws, all - hidden + 2, spans + 1, 1);
  --gaps.front();
  --gaps.back();
  NoisedText noised;
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    append(noised.source, tokens, at, gaps[i]);
    noised.source.push_back(vocabulary.sentinels[i]);
    noised.target.push_back(vocabulary.sentinels[i]);
    append(noised.target, tokens, at + gaps[i], lengths[i]);
    at += gaps[i] + lengths[i];
  }
  append(noised.source, tokens, at, gaps.back());
  noised.target.push_back(vocabulary.sentinels[lengths.size()]);
  return noised;
}

std::vector<int32_t> fill_spans(std::span<const int32_t> source, std::span<const int32_t> target,
                                const DenoisingVocabulary& vocabulary) {
  const auto is_sentinel = [&](int32_t id) {
    return std::find(vocabulary.sentinels.begin(), vocabulary.sentinels.end(), id) !=
           vocabulary.sentinels.end();
  };
  std::vector<int32_t> filled;
  for (const int32_t id : source) {
    if (!is_sentinel(id)) {
      filled.push_back(id);
      continue;
    }
    const auto found = std::find(target.begin(), target.end(), id);
    if (found == target.end()) continue;
    filled.insert(filled.end(), found + 1, std::find_if(found + 1, target.end(), is_sentinel));
  }
  return filled;
}

NoisedText infill(std::span<const int32_t> tokens, const DenoisingVocabulary& vocabulary,
                  const DenoisingOptions& options, const PhiloxKey& key, int64_t text) {
  check_fits(tokens, options, text);
  const auto all = static_cast<int64_t>(tokens.size());
  NoisedText noised{{}, {tokens.begin(), tokens.end()}};
  if (all == 0) return noised;
  const int64_t hidden = std::min(hidden_tokens(all, options), all);
  RowDraws draws(key, text);
  std::vector<int64_t> lengths;
  int64_t empty = 0;
  for (int64_t left = hidden; left > 0;) {
    const int64_t length = std::min(random_poisson(draws, options.mean_span_length), left);
    lengths.push_back(length);
    empty += length == 0;
    left -= length;
  }
  const auto whole = static_cast<int64_t>(lengths.size()) - empty;
  const int64_t room = options.max_length - 1 - (all - hidden + whole);
  for (auto it = lengths.begin(); empty > room;) {
    it = std::find(it, lengths.end(), 0);
    it = lengths.erase(it);
    --empty;
  }
  // The last span was shortened to fit: shuffle, so that it may be anywhere.
  draws.shuffle(lengths);
  const auto gaps = random_parts(draws, all - hidden, static_cast<int64_t>(lengths.size()) + 1, 0);
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    append(noised.source, tokens, at, gaps[i]);
    noised.source.push_back(vocabulary.mask_id);
    at += gaps[i] + lengths[i];
  }
  append(noised.source, tokens, at, gaps.back());
  return noised;
}

NoisedText DenoisingBatches::Noise::operator()(int64_t epoch, int64_t text) const {
  const PhiloxKey key = draw_key(seed, anew ? epoch : 0, "data.noise");
  const auto tokens = corpus->tokens[text];
  return options.objective == "infilling" ? infill(tokens, vocabulary, options, key, text)
                                          : span_corrupt(tokens, vocabulary, options, key, text);
}

DenoisingBatches::DenoisingBatches(const TextCorpus& corpus, const Tokenizer& tokenizer,
                                   const DenoisingOptions& options, const BatchOptions& batching,
                                   DataPosition start)
    : around_({std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), &tokenizer),
               std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), &tokenizer)}),
      noise_{&corpus, DenoisingVocabulary(tokenizer, options), options, batching.shuffle,
             batching.seed},
      walk_(EpochPlans::of_lengths(
                mixture_of(corpus.size(), corpus.parts, batching),
                [noise = noise_, source = around_.source.size(), target = around_.target.size()](
                    int64_t epoch, int64_t text) {
                  const NoisedText noised = noise(epoch, text);
                  return RowLength{std::ssize(noised.source) + source,
                                   std::ssize(noised.target) + target};
                },
                batching),
            start) {}

TranslationBatch DenoisingBatches::next() {
  const auto texts = walk_.next();
  ParallelCorpus rows;
  rows.rows = around_;
  std::vector<int64_t> numbers;
  for (const int64_t text : texts) {
    const NoisedText noised = noise_(walk_.position().epoch, text);
    numbers.push_back(rows.size());
    rows.source.push_back(noised.source);
    rows.target.push_back(noised.target);
  }
  TranslationBatch batch = make_translation_batch(rows, numbers);
  batch.indices.assign(texts.begin(), texts.end());
  return batch;
}

}  // namespace tapestry
