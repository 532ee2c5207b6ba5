// Denoising objectives for encoder-decoders: the source is a text with holes, the target the hidden
// tokens or the whole text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "data/batches/batching.h"

namespace tapestry {

struct DenoisingOptions {
  static constexpr const char* kObjectives[] = {"span_corruption", "infilling"};
  static constexpr double kLongestMeanSpan = 100;

  std::string objective = "span_corruption";  ///< span_corruption: T5's; infilling: BART's
  double noise_density = 0;     ///< share of hidden tokens; 0: 0.15 for T5, 0.3 for BART
  double mean_span_length = 3;  ///< tokens of a hidden span, on average
  int64_t max_length = 128;     ///< limit of tokens in a row, with bos and eos

  double density() const;  ///< noise_density with its default
  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
};

/// The special ids of a vocabulary that denoising needs.
struct DenoisingVocabulary {
  /// Throws Error(kConfig) if the tokenizer lacks tokens of the objective: two sentinels or <mask>.
  DenoisingVocabulary(const Tokenizer& tokenizer, const DenoisingOptions& options);
  DenoisingVocabulary(int32_t mask, std::vector<int32_t> sentinel_ids)
      : mask_id(mask), sentinels(std::move(sentinel_ids)) {}

  int32_t mask_id = kUnkId;
  std::vector<int32_t> sentinels;
};

/// A corrupted text and its target, without bos and eos.
struct NoisedText {
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

/// T5 (Raffel et al. 2020, section 3.1.4): hides round(n * density) tokens in round(that /
/// mean_span_length) spans of random lengths that do not touch. The source has <extra_id_i> in
/// place of span i; the target is <extra_id_0> span 0 <extra_id_1> span 1 ... and a final sentinel.
/// At least one token is hidden. There are fewer, longer spans if sentinels run out, and fewer
/// hidden tokens if the target would exceed max_length. Unlike in T5's code a text may begin with a
/// span and need not end with one: else the end of every sentence would be hidden.
///
/// A pure function: `key` and `text` (below 2^32) decide the draws.
NoisedText span_corrupt(std::span<const int32_t> tokens, const DenoisingVocabulary& vocabulary,
                        const DenoisingOptions& options, const PhiloxKey& key, int64_t text);

/// Undoes span_corrupt(): replaces each sentinel of `source` by the tokens that stand behind it in
/// `target`, up to the next sentinel. A sentinel that `target` lacks leaves nothing; if it comes
/// twice there, the first counts.
std::vector<int32_t> fill_spans(std::span<const int32_t> source, std::span<const int32_t> target,
                                const DenoisingVocabulary& vocabulary);

/// BART (Lewis et al. 2020, "text infilling"): spans with lengths from Poisson(mean_span_length),
/// together round(n * density) tokens and at least one, each replaced by one <mask>. A span of
/// length 0 inserts a <mask> if the source still fits max_length. The target is the whole text.
/// Arguments as of span_corrupt.
NoisedText infill(std::span<const int32_t> tokens, const DenoisingVocabulary& vocabulary,
                  const DenoisingOptions& options, const PhiloxKey& key, int64_t text);

/// Texts as pairs of corrupted and target text in batches of similar length. Noise is a function of
/// (seed, epoch, number of the text); without shuffle always that of epoch 0.
/// TranslationBatch.indices are numbers of texts.
class DenoisingBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do, and Error(kConfig) if a text
  /// has more than max_length - 1 tokens.
  DenoisingBatches(const TextCorpus& corpus, const Tokenizer& tokenizer,
                   const DenoisingOptions& options, const BatchOptions& batching,
                   DataPosition start = {});

  TranslationBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  /// Corrupts text i as epoch e does.
  struct Noise {
    const TextCorpus* corpus;
    DenoisingVocabulary vocabulary;
    DenoisingOptions options;
    bool anew;
    uint64_t seed;

    NoisedText operator()(int64_t epoch, int64_t text) const;
  };

  PairRows around_;
  Noise noise_;
  EpochWalk walk_;
};

}  // namespace tapestry
