// Which documents share a row, where each row begins with one; private to data/examples/.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "data/corpora/token_stream.h"

namespace tapestry {

/// `tokens` of a stream from `begin` on.
struct BlockPlace {
  int64_t begin;
  int64_t tokens;
  int64_t known = 0;  ///< so many of them stand in the block before, too
};

/// Documents put whole into rows of `width` tokens, each into the row that it fills best, the
/// longest first (best fit decreasing), in a random order within a row. A longer one is cut into
/// rows, and its rest is put like a document. All is a function of (seed, epoch).
class DocumentPacking {
 public:
  struct Options {
    int64_t width = 0;
    int64_t behind = 0;  ///< tokens that must stand behind a place: the last document has fewer
    bool shuffle = true;
    uint64_t seed = 1;
  };
  DocumentPacking(const TokenStream& stream, const Options& options);

  int64_t rows(int64_t epoch) const { return of(epoch)->rows(); }
  /// The documents of a row, or their parts, in order.
  std::vector<BlockPlace> row(int64_t epoch, int64_t number) const {
    const auto packed = of(epoch);
    const std::span<const BlockPlace> places = packed->row(number);
    return {places.begin(), places.end()};
  }

 private:
  struct Rows {
    std::vector<BlockPlace> places;
    std::vector<int64_t> ends;  // of each row in `places`

    int64_t rows() const { return std::ssize(ends); }
    std::span<const BlockPlace> row(int64_t number) const;
  };
  std::shared_ptr<const Rows> of(int64_t epoch) const;
  Rows pack(int64_t epoch) const;

  TokenStream stream_;
  Options options_;
  mutable std::mutex mutex_;  // a loader asks, too
  mutable std::optional<int64_t> epoch_;
  mutable std::shared_ptr<const Rows> rows_;  // of epoch_
};

}  // namespace tapestry
