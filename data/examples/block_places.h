// The places of an epoch's blocks in a stream of tokens; private to data/examples/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batches/batching.h"
#include "data/corpora/token_stream.h"
#include "data/examples/document_packing.h"

namespace tapestry {

struct BlockOptions;

/// Cuts a stream into blocks of `width` tokens, as a function of (seed, epoch).
///
/// With BlockOptions::best_fit a row is documents, put together by DocumentPacking. Otherwise,
/// without shares of corpora (BlockOptions::mix), every epoch cuts the whole stream, with shuffle
/// from a new random place on. With shares each corpus is cut by itself, and every pass through it
/// begins at a place of its own.
class BlockPlaces {
 public:
  /// `behind`: tokens that must stand behind a block (1 where the next token is predicted). Throws
  /// Error(kConfig) for bad options, Error(kData) if the stream, or with shares one of its corpora,
  /// has no room for a block.
  BlockPlaces(const TokenStream& stream, int64_t width, int64_t behind,
              const BlockOptions& options);

  /// For people: how documents fill the blocks of epoch 0; empty if they are drawn by shares.
  std::string summary() const;
  /// Batches of the numbers of blocks.
  EpochPlans plans() const;
  /// The blocks with these numbers, in their order, each of one place or, with best_fit, of a place
  /// for each document.
  std::vector<std::vector<BlockPlace>> of(int64_t epoch, std::span<const int64_t> blocks) const;

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

  // How many documents lie in two blocks or more of an epoch.
  int64_t documents_cut(int64_t epoch) const;
  int64_t offset_in(int64_t places, int64_t pass, size_t corpus) const;
  Cut cut_of(int64_t epoch) const;

  TokenStream stream_;
  int64_t width_;
  int64_t stride_;  // width_, where blocks do not overlap
  int64_t block_size_;
  int64_t batch_size_;
  bool shuffle_;
  uint64_t seed_;
  std::vector<Corpus> corpora_;                     // with shares one for each, else one
  std::shared_ptr<const Mixture> mixture_;          // null without shares
  std::shared_ptr<const DocumentPacking> packing_;  // null without best_fit
};

}  // namespace tapestry
