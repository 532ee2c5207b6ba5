#include "data/block_batching.h"

#include <algorithm>

#include "core/error.h"
#include "data/draws.h"

namespace tapestry {
namespace {

// One epoch of a stream cut into rows of `width` tokens each, the last one perhaps shorter.
struct Cut {
  int64_t offset;
  int64_t rows;
};

// `places` is the number of tokens to cut. Both members are functions of (seed, epoch).
Cut cut_stream(int64_t places, int64_t width, const BlockOptions& options, int64_t epoch) {
  if (!options.shuffle) return {0, (places + width - 1) / width};
  // Even a short stream has room for one whole row.
  const int64_t choices = std::min(width, places - width + 1);
  const auto offset = static_cast<int64_t>(philox_below(
      draw_key(options.seed, epoch, "data.offset"), 0, static_cast<uint64_t>(choices)));
  return {offset, (places - offset) / width};
}

// Throws unless an epoch has at least one row.
EpochWalk walk_of(const TokenStream& stream, int64_t places, int64_t width,
                  const BlockOptions& options, DataPosition start) {
  options.validate();
  if (width < 1) {
    fail(ErrorKind::kConfig, "[data] block_size must have room for bos and a token, got ",
         options.block_size, '.');
  }
  const int64_t least = options.shuffle ? width : 1;
  if (places < least) {
    fail(ErrorKind::kData, "[data] a text to cut into blocks must have at least ",
         stream.size() - places + least, " tokens, got ", stream.size(), '.');
  }
  return EpochWalk(
      EpochPlans::of_equal_rows(
          [=](int64_t epoch) { return cut_stream(places, width, options, epoch).rows; },
          options.batch_size, options.shuffle, options.seed),
      start);
}

// A batch of only padding, which the caller fills row by row.
BlockBatch empty_batch(int64_t rows, int64_t width, int32_t filler) {
  BlockBatch batch;
  batch.rows = rows;
  batch.ids = Tensor::full({rows, width}, filler, DType::kInt32);
  batch.targets = Tensor::full({rows, width}, kNoTarget, DType::kInt32);
  batch.lengths = Tensor::full({rows}, static_cast<double>(width), DType::kInt32);
  return batch;
}

void fill_row(BlockBatch& batch, int64_t row, std::span<const int32_t> ids,
              std::span<const int32_t> targets) {
  const int64_t width = batch.ids.numel() / batch.rows;
  std::copy(ids.begin(), ids.end(), batch.ids.data<int32_t>() + row * width);
  std::copy(targets.begin(), targets.end(), batch.targets.data<int32_t>() + row * width);
  batch.lengths.data<int32_t>()[row] = static_cast<int32_t>(ids.size());
  batch.tokens += std::count_if(targets.begin(), targets.end(),
                                [](int32_t target) { return target != kNoTarget; });
}

// Leaves `lengths` undefined if all rows are full.
BlockBatch finish(BlockBatch batch) {
  const int64_t width = batch.ids.numel() / batch.rows;
  const int32_t* const lengths = batch.lengths.data<int32_t>();
  if (std::all_of(lengths, lengths + batch.rows, [&](int32_t l) { return l == width; })) {
    batch.lengths = Tensor();
  }
  return batch;
}

}  // namespace

void BlockOptions::validate(const OptionReport& report) const {
  report.expect(block_size >= 1 && block_size <= kLongest, "block_size", "must be in [1, ",
                kLongest, "], got ", block_size, '.');
  report.expect(batch_size >= 1, "batch_size", "must be at least 1, got ", batch_size, '.');
}

BlockBatches::BlockBatches(TokenStream stream, const BlockOptions& options, DataPosition start)
    : stream_(std::move(stream)),
      options_(options),
      walk_(walk_of(stream_, stream_.size() - 1, options.block_size, options, start)) {}

BlockBatch BlockBatches::next() {
  const auto blocks = walk_.next();
  const int64_t width = options_.block_size;
  const Cut cut = cut_stream(stream_.size() - 1, width, options_, walk_.position().epoch);
  const auto rows = static_cast<int64_t>(blocks.size());
  BlockBatch batch = empty_batch(rows, width, stream_.filler());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = cut.offset + blocks[static_cast<size_t>(row)] * width;
    const auto count = static_cast<size_t>(std::min(width, stream_.size() - 1 - begin));
    const auto at = static_cast<size_t>(begin);
    fill_row(batch, row, stream_.tokens().subspan(at, count),
             stream_.tokens().subspan(at + 1, count));
  }
  return finish(std::move(batch));
}

MaskedBlockBatches::MaskedBlockBatches(TokenStream stream, const Tokenizer& tokenizer,
                                       const BlockOptions& options, const MaskingOptions& masking,
                                       DataPosition start)
    : stream_(std::move(stream)),
      vocabulary_(tokenizer),
      frame_(tokenizer.special().masked()),
      options_(options),
      masking_(masking),
      walk_(walk_of(stream_, stream_.size(), options.block_size - frame_.size(), options, start)) {
  masking.validate();
}

BlockBatch MaskedBlockBatches::next() {
  const auto blocks = walk_.next();
  const int64_t epoch = walk_.position().epoch;
  const int64_t width = options_.block_size - frame_.size();
  const Cut cut = cut_stream(stream_.size(), width, options_, epoch);
  const PhiloxKey key = draw_key(options_.seed, options_.shuffle ? epoch : 0, "data.mask");
  const auto rows = static_cast<int64_t>(blocks.size());
  BlockBatch batch = empty_batch(rows, options_.block_size, stream_.filler());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t block = blocks[static_cast<size_t>(row)];
    const int64_t begin = cut.offset + block * width;
    const int64_t count = std::min(width, stream_.size() - begin);
    const auto text =
        stream_.tokens().subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    std::vector<int32_t> tokens = frame_.before;
    tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.insert(tokens.end(), frame_.after.begin(), frame_.after.end());
    const MaskedTokens masked = mask_tokens(tokens, vocabulary_, masking_, key, block);
    fill_row(batch, row, masked.ids, masked.targets);
  }
  return finish(std::move(batch));
}

}  // namespace tapestry
