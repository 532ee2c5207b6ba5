#include "data/examples/block_places.h"

#include <algorithm>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "data/examples/block_batching.h"

namespace tapestry {
namespace {

// Number of places at which the first block may begin. Even a short stream has room for one whole
// block.
int64_t choices_of(int64_t places, int64_t width) { return std::min(width, places - width + 1); }

}  // namespace

BlockPlaces::BlockPlaces(const TokenStream& stream, int64_t width, int64_t behind,
                         const BlockOptions& options)
    : width_(width),
      stride_(options.shuffle || options.stride == 0 ? width : std::min(options.stride, width)),
      block_size_(options.block_size),
      batch_size_(options.batch_size),
      shuffle_(options.shuffle),
      seed_(options.seed) {
  options.validate();
  if (width < 1) {
    fail(ErrorKind::kConfig, "[data] block_size must have room for bos and a token, got ",
         options.block_size, '.');
  }
  const bool mixes = options.shuffle && options.mix.mixes() && stream.parts().size() > 1;
  const std::vector<int64_t> parts = mixes ? stream.parts() : std::vector<int64_t>{stream.size()};
  const int64_t least = options.shuffle ? width : 1;
  int64_t begin = 0, blocks = 0;
  std::vector<int64_t> blocks_of;
  for (const int64_t tokens : parts) {
    if (tokens - behind < least) {
      fail(ErrorKind::kData, "[data] a text to cut into blocks must have at least ", behind + least,
           " tokens, got ", tokens, '.');
    }
    const int64_t places = tokens - behind;
    corpora_.push_back({begin, places});
    begin += tokens;
    if (!mixes) continue;
    // The number of blocks for which every pass has room, wherever it begins.
    blocks_of.push_back((places - choices_of(places, width) + 1) / width);
    blocks += blocks_of.back();
  }
  if (mixes) mixture_ = std::make_shared<Mixture>(blocks, blocks_of, options.mix, options.seed);
}

int64_t BlockPlaces::offset_in(int64_t places, int64_t pass, size_t corpus) const {
  PhiloxKey key = draw_key(seed_, pass, "data.offset");
  key.stream += static_cast<uint32_t>(corpus);
  return static_cast<int64_t>(
      philox_below(key, 0, static_cast<uint64_t>(choices_of(places, width_))));
}

BlockPlaces::Cut BlockPlaces::cut_of(int64_t epoch) const {
  const int64_t places = corpora_[0].places;
  // The last of them is the first that reaches the end.
  if (!shuffle_) return {0, 1 + (std::max<int64_t>(0, places - width_) + stride_ - 1) / stride_};
  const int64_t offset = offset_in(places, epoch, 0);
  return {offset, (places - offset) / width_};
}

EpochPlans BlockPlaces::plans() const {
  return EpochPlans::of_equal_rows({.rows =
                                        [self = *this](int64_t epoch) {
                                          return self.mixture_ ? self.mixture_->epoch(epoch).size()
                                                               : self.cut_of(epoch).rows;
                                        },
                                    .batch_size = batch_size_,
                                    .shuffle = shuffle_,
                                    .seed = seed_,
                                    .row_tokens = block_size_});
}

std::vector<BlockPlace> BlockPlaces::of(int64_t epoch, std::span<const int64_t> blocks) const {
  std::vector<BlockPlace> places;
  if (!mixture_) {
    const Cut cut = cut_of(epoch);
    for (const int64_t block : blocks) {
      const int64_t begin = cut.offset + block * stride_;
      places.push_back(
          {begin, std::min(width_, corpora_[0].places - begin), block == 0 ? 0 : width_ - stride_});
    }
    return places;
  }
  const EpochRows rows = mixture_->epoch(epoch);
  for (const int64_t block : blocks) {
    const EpochRows::Place at = rows.place(block);
    const Corpus& corpus = corpora_[at.corpus];
    const int64_t offset = offset_in(corpus.places, at.pass, at.corpus);
    places.push_back({corpus.begin + offset + at.row * width_, width_});
  }
  return places;
}

}  // namespace tapestry
