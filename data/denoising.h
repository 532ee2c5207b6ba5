// Denoising objectives for encoder-decoders: text with holes in, what was in them (or all of it)
// out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "data/batching.h"

namespace tapestry {

struct DenoisingOptions {
  std::string objective = "span_corruption";  ///< span_corruption (T5) | infilling (BART)
  double noise_density = 0;  ///< share of the tokens that is hidden; 0: 0.15 for T5, 0.3 for BART
  double mean_span_length = 3;  ///< tokens of a hidden span, on average
  int64_t max_length = 128;     ///< most tokens of a row, bos and eos included

  double density() const;  ///< noise_density with its default
  void validate() const;
};

/// What denoising needs to know of a vocabulary.
struct DenoisingVocabulary {
  /// Throws Error(kConfig) when the tokenizer lacks what the objective needs: two sentinels or
  /// <mask>.
  DenoisingVocabulary(const Tokenizer& tokenizer, const DenoisingOptions& options);
  DenoisingVocabulary(int32_t mask, std::vector<int32_t> sentinel_ids)
      : mask_id(mask), sentinels(std::move(sentinel_ids)) {}

  int32_t mask_id = kUnkId;
  std::vector<int32_t> sentinels;
};

/// A corrupted text and what is to be written, without bos and eos.
struct NoisedText {
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

/// T5 (Raffel et al. 2020, section 3.1.4): round(n * density) tokens, in
/// round(that / mean_span_length) spans of random lengths, none touching another, are hidden. The
/// source has <extra_id_i> in place of span i; the target is <extra_id_0> span 0 <extra_id_1> span
/// 1
/// ... and a final sentinel. At least one token is hidden. Spans are fewer (and longer) where
/// sentinels run out, hidden tokens fewer where the target would not fit max_length. Unlike in T5's
/// code a text may also begin with a span and need not end with one: in single sentences the end
/// would always be hidden.
///
/// A pure function: the draws are those of `key`, told apart by `text` (below 2^32).
NoisedText span_corrupt(std::span<const int32_t> tokens, const DenoisingVocabulary& vocabulary,
                        const DenoisingOptions& options, const PhiloxKey& key, int64_t text);

/// BART (Lewis et al. 2020, "text infilling"): spans with lengths from Poisson(mean_span_length),
/// together round(n * density) tokens and at least one, each replaced by one <mask>; a span of
/// length 0 inserts a <mask>, as long as the source fits max_length. The target is the whole text.
/// Arguments as of span_corrupt.
NoisedText infill(std::span<const int32_t> tokens, const DenoisingVocabulary& vocabulary,
                  const DenoisingOptions& options, const PhiloxKey& key, int64_t text);

/// Texts as pairs of corrupted and target text in batches of similar length. Noise is drawn from
/// (seed, epoch, number of the text), anew in every epoch (without shuffle: as in epoch 0).
/// TranslationBatch.indices are numbers of texts.
class DenoisingBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do, and Error(kConfig) when a
  /// text has more than max_length - 1 tokens.
  DenoisingBatches(const TextCorpus& corpus, const Tokenizer& tokenizer,
                   const DenoisingOptions& options, const BatchOptions& batching,
                   DataPosition start = {});

  TranslationBatch next();
  /// After the batch returned last. A walk that starts here continues with the very same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }

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

  Noise noise_;
  EpochWalk walk_;
};

}  // namespace tapestry
