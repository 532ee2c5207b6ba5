// The places of an epoch's blocks in a stream of tokens; private to data/examples/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/batches/batching.h"
#include "data/corpora/token_stream.h"

namespace tapestry {

struct BlockOptions;

struct BlockPlace {
  int64_t begin;
  int64_t tokens;
  int64_t known = 0;  ///< so many of them stand in the block before, too
};

/// Cuts a stream into blocks of `width` tokens, as a function of (seed, epoch).
///
/// Without shares of corpora (BlockOptions::mix) every epoch cuts the whole stream, with shuffle
/// from a new random place on. With shares each corpus is cut by itself, and every pass through it
/// begins at a place of its own.
class BlockPlaces {
 public:
  /// `behind`: tokens that must stand behind a block (1 where the next token is predicted). Throws
  /// Error(kConfig) for bad options, Error(kData) if the stream, or with shares one of its corpora,
  /// has no room for a block.
  BlockPlaces(const TokenStream& stream, int64_t width, int64_t behind,
              const BlockOptions& options);

  /// Batches of the numbers of blocks.
  EpochPlans plans() const;
  /// The blocks with these numbers, in their order.
  std::vector<BlockPlace> of(int64_t epoch, std::span<const int64_t> blocks) const;

 private:
  struct Corpus {
    int64_t begin;   // in the stream
    int64_t places;  // places at which a token of a block may stand
  };
  // The cut of one epoch of the whole stream.
  struct Cut {
    int64_t offset;
    int64_t rows;
  };

  int64_t offset_in(int64_t places, int64_t pass, size_t corpus) const;
  Cut cut_of(int64_t epoch) const;

  int64_t width_;
  int64_t stride_;  // width_, where blocks do not overlap
  int64_t block_size_;
  int64_t batch_size_;
  bool shuffle_;
  uint64_t seed_;
  std::vector<Corpus> corpora_;             // with shares one for each, else one
  std::shared_ptr<const Mixture> mixture_;  // null without shares
};

}  // namespace tapestry
