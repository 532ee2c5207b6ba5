#include "data/examples/block_places.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

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
    : stream_(stream),
      width_(width),
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
  if (options.best_fit) {
    packing_ = std::make_shared<DocumentPacking>(
        stream, DocumentPacking::Options{width, behind, options.shuffle, options.seed});
  }
  const bool mixes = options.shuffle && options.mix.mixes() && stream.parts().size() > 1;
  const std::vector<int64_t> parts = mixes ? stream.parts() : std::vector<int64_t>{stream.size()};
  const int64_t least = options.shuffle && !options.best_fit ? width : 1;
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

int64_t BlockPlaces::documents_cut(int64_t epoch) const {
  int64_t cut = 0;
  const int64_t offset = packing_ ? 0 : cut_of(epoch).offset;
  for (int64_t i = 0; i < stream_.whole_documents(); ++i) {
    const int64_t begin = stream_.start_of(i);
    const int64_t last = std::min(stream_.start_of(i + 1), corpora_[0].places) - 1;
    if (packing_) {
      cut += last - begin >= width_ ? 1 : 0;
    } else if (last > begin) {
      // Blocks begin behind the offset.
      const auto block_of = [&](int64_t at) { return at < offset ? -1 : (at - offset) / width_; };
      cut += block_of(begin) != block_of(last) ? 1 : 0;
    }
  }
  return cut;
}

std::string BlockPlaces::summary() const {
  if (mixture_) return "";
  const int64_t rows = packing_ ? packing_->rows(0) : cut_of(0).rows;
  std::ostringstream text;
  text << rows << " blocks of " << width_ << " tokens, " << documents_cut(0) << " of "
       << stream_.whole_documents() << " documents cut";
  if (packing_) {
    const double places = static_cast<double>(rows * width_);
    text << std::fixed << std::setprecision(1) << ", padding "
         << 100 * (1 - static_cast<double>(corpora_[0].places) / places) << " %";
  }
  return text.str();
}

EpochPlans BlockPlaces::plans() const {
  return EpochPlans::of_equal_rows({.rows =
                                        [self = *this](int64_t epoch) {
                                          if (self.packing_) return self.packing_->rows(epoch);
                                          return self.mixture_ ? self.mixture_->epoch(epoch).size()
                                                               : self.cut_of(epoch).rows;
                                        },
                                    .batch_size = batch_size_,
                                    .shuffle = shuffle_,
                                    .seed = seed_,
                                    .row_tokens = block_size_});
}

std::vector<std::vector<BlockPlace>> BlockPlaces::of(int64_t epoch,
                                                     std::span<const int64_t> blocks) const {
  std::vector<std::vector<BlockPlace>> places;
  if (packing_) {
    for (const int64_t block : blocks) places.push_back(packing_->row(epoch, block));
    return places;
  }
  if (!mixture_) {
    const Cut cut = cut_of(epoch);
    for (const int64_t block : blocks) {
      const int64_t begin = cut.offset + block * stride_;
      const int64_t known = block == 0 ? 0 : width_ - stride_;
      places.push_back({{begin, std::min(width_, corpora_[0].places - begin), known}});
    }
    return places;
  }
  const EpochRows rows = mixture_->epoch(epoch);
  for (const int64_t block : blocks) {
    const EpochRows::Place at = rows.place(block);
    const Corpus& corpus = corpora_[at.corpus];
    const int64_t offset = offset_in(corpus.places, at.pass, at.corpus);
    places.push_back({{corpus.begin + offset + at.row * width_, width_}});
  }
  return places;
}

}  // namespace tapestry
