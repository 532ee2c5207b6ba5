// Batches for language models: blocks of one length, cut from a stream of tokens.
//
// Targets of kNoTarget are ignored.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "data/batches/batching.h"
#include "data/corpora/token_stream.h"
#include "data/examples/block_places.h"
#include "data/examples/masking.h"

namespace tapestry {

struct BlockOptions {
  static constexpr int64_t kLongest = int64_t{1} << 24;

  int64_t block_size = 256;  ///< T: tokens of a row, at most kLongest
  int64_t batch_size = 64;   ///< B: rows of a batch
  /// true: every epoch cuts the stream at new random places and shuffles the blocks; less than a
  /// block at each end is left out in that epoch. false: the whole stream in order, the last block
  /// filled up.
  bool shuffle = true;
  uint64_t seed = 1;
  /// Without shuffle: each block begins so many tokens behind the one before, and tokens that the
  /// one before predicts have no target, so that the others see more before them. 0: block_size.
  int64_t stride = 0;
  MixOptions mix = {};  ///< of the corpora of a list; applies with shuffle
  /// Blocks are documents put together (DocumentPacking), not cut from the stream. Without shuffle
  /// the same each time; no stride and no mix.
  bool best_fit = false;
  bool document_mask = false;  ///< batches say where documents begin (BlockBatch::documents)

  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
};

/// Rows on the CPU; all tensors int32.
struct BlockBatch {
  Tensor ids;                         ///< (B, T)
  Tensor targets;                     ///< (B, T): kNoTarget if there is nothing to predict
  Tensor lengths;                     ///< (B): tokens of each row; undefined if all rows have T
  int64_t rows = 0;                   ///< B
  int64_t tokens = 0;                 ///< targets other than kNoTarget
  std::vector<int64_t> indices = {};  ///< the number in the corpus of each row that is a document
  /// The lengths of the documents of each row, of which none sees another one; its padding is one
  /// of them. Empty: every row is one.
  std::vector<std::vector<int32_t>> documents = {};
};

/// A batch of only padding without targets, whose rows fill_row() fills.
BlockBatch empty_batch(int64_t rows, int64_t width, int32_t filler);
void fill_row(BlockBatch& batch, int64_t row, std::span<const int32_t> ids,
              std::span<const int32_t> targets);
/// The same batch, with `lengths` undefined if all rows are full.
BlockBatch with_lengths_if_needed(BlockBatch batch);

BlockBatch rows_of(const BlockBatch& batch, int64_t begin, int64_t end);

/// Causal blocks: targets are the next ids. Without shuffle every token of the stream except the
/// first is a target once.
class BlockBatches {
 public:
  /// Starts at `start`, which may lie at the end of an epoch. Throws Error(kData) if the stream has
  /// fewer than 2 tokens (with shuffle: T + 1), or if that epoch has fewer batches than
  /// start.batch.
  BlockBatches(TokenStream stream, const BlockOptions& options, DataPosition start = {});

  BlockBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() const { return places_.summary(); }

 private:
  TokenStream stream_;
  BlockOptions options_;
  BlockPlaces places_;
  EpochWalk walk_;
};

/// Masked blocks: tokens of the stream in the tokenizer's frame, which is bos in front. Every epoch
/// draws a new mask; without shuffle always that of epoch 0, so that validation stays the same.
class MaskedBlockBatches {
 public:
  /// Like BlockBatches, but the stream needs at least one token (with shuffle: one block).
  MaskedBlockBatches(TokenStream stream, const Tokenizer& tokenizer, const BlockOptions& options,
                     const MaskingOptions& masking, DataPosition start = {});

  BlockBatch next();
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() const { return places_.summary(); }

 private:
  TokenStream stream_;
  MaskingVocabulary vocabulary_;
  TextFrame frame_;
  BlockOptions options_;
  MaskingOptions masking_;
  BlockPlaces places_;
  EpochWalk walk_;
};

}  // namespace tapestry
