// Batches for language models: blocks of one length, cut from a stream of tokens.
//
// A target of kPadId counts for nothing: what other systems write as the label -100 is the pad id
// here, which no text holds.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "data/batching.h"
#include "data/masking.h"
#include "data/token_stream.h"

namespace tapestry {

struct BlockOptions {
  int64_t block_size = 256;  ///< T: tokens of a row
  int64_t batch_size = 64;   ///< B: rows of a batch
  /// true: cut anew at a random place and shuffled in every epoch. What is left over at the ends,
  /// less than a block each, is not seen in that epoch. false: all of the stream in its order, the
  /// last block filled up with the pad id.
  bool shuffle = true;
  uint64_t seed = 1;

  void validate() const;
};

/// Rows on the CPU; all tensors int32.
struct BlockBatch {
  Tensor ids;          ///< (B, T)
  Tensor targets;      ///< (B, T): kPadId where nothing is to be predicted
  Tensor lengths;      ///< (B): tokens of each row; undefined when all rows have T
  int64_t rows = 0;    ///< B
  int64_t tokens = 0;  ///< targets that count, which are not kPadId
};

/// Causal blocks: targets are the ids that come next. In an epoch that is not shuffled every token
/// of the stream but the first is a target once.
class BlockBatches {
 public:
  /// Starts at `start`, which may lie at the end of an epoch. Throws Error(kData) when the stream
  /// has fewer than 2 tokens (with shuffle: than T + 1), or when that epoch has fewer batches than
  /// start.batch.
  BlockBatches(TokenStream stream, const BlockOptions& options, DataPosition start = {});

  BlockBatch next();
  /// After the batch returned last. A walk that starts here continues with the very same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }

 private:
  TokenStream stream_;
  BlockOptions options_;
  EpochWalk walk_;
};

/// Masked blocks: bos and T - 1 tokens of the stream, masked anew in every epoch (without shuffle:
/// as in epoch 0, so that validation is always the same).
class MaskedBlockBatches {
 public:
  /// As BlockBatches; a stream has at least one token (with shuffle: T - 1).
  MaskedBlockBatches(TokenStream stream, const Tokenizer& tokenizer, const BlockOptions& options,
                     const MaskingOptions& masking, DataPosition start = {});

  BlockBatch next();
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }

 private:
  TokenStream stream_;
  MaskingVocabulary vocabulary_;
  BlockOptions options_;
  MaskingOptions masking_;
  EpochWalk walk_;
};

}  // namespace tapestry
