#include "data/examples/block_batching.h"

#include <algorithm>
#include <numeric>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "data/batches/batch_rows.h"

namespace tapestry {

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

BlockBatch with_lengths_if_needed(BlockBatch batch) {
  const int64_t width = batch.ids.numel() / batch.rows;
  const int32_t* const lengths = batch.lengths.data<int32_t>();
  if (std::all_of(lengths, lengths + batch.rows, [&](int32_t l) { return l == width; })) {
    batch.lengths = Tensor();
  }
  return batch;
}

void BlockOptions::validate(const OptionReport& report) const {
  report.expect(block_size >= 1 && block_size <= kLongest, "block_size", "must be in [1, ",
                kLongest, "], got ", block_size, '.');
  report.expect(stride >= 0 && stride <= block_size, "stride", "must be in [0, block_size], got ",
                stride, '.');
  report.expect(!best_fit || (stride == 0 && !mix.mixes()), "best_fit",
                "must have no stride and no mix, got a stride of ", stride, '.');
  report.expect(batch_size >= 1, "batch_size", "must be at least 1, got ", batch_size, '.');
  mix.validate(report);
}

namespace {

// The documents of a row in its frame, which belongs to the first and the last one.
std::vector<int32_t> documents_of(const TokenStream& stream, const std::vector<BlockPlace>& places,
                                  const TextFrame& frame, int64_t width) {
  std::vector<int32_t> lengths;
  for (const BlockPlace& place : places) {
    const auto own = stream.documents_in(place.begin, place.tokens);
    lengths.insert(lengths.end(), own.begin(), own.end());
  }
  lengths.front() += static_cast<int32_t>(frame.before.size());
  lengths.back() += static_cast<int32_t>(frame.after.size());
  const int64_t padding = width - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (padding > 0) lengths.push_back(static_cast<int32_t>(padding));
  return lengths;
}

}  // namespace

BlockBatches::BlockBatches(TokenStream stream, const BlockOptions& options, DataPosition start)
    : stream_(std::move(stream)),
      options_(options),
      places_(stream_, options.block_size, /*behind=*/1, options),
      walk_(places_.plans(), start) {}

BlockBatch BlockBatches::next() {
  const auto blocks = walk_.next();
  BlockBatch batch = empty_batch(std::ssize(blocks), options_.block_size, stream_.filler());
  int64_t row = 0;
  for (const std::vector<BlockPlace>& places : places_.of(walk_.position().epoch, blocks)) {
    std::vector<int32_t> ids, targets;
    for (const BlockPlace& place : places) {
      const auto at = static_cast<size_t>(place.begin), count = static_cast<size_t>(place.tokens);
      const auto own = stream_.tokens().subspan(at, count);
      const auto next = stream_.tokens().subspan(at + 1, count);
      ids.insert(ids.end(), own.begin(), own.end());
      targets.insert(targets.end(), static_cast<size_t>(place.known), kNoTarget);
      targets.insert(targets.end(), next.begin() + place.known, next.end());
    }
    fill_row(batch, row++, ids, targets);
    if (options_.document_mask) {
      batch.documents.push_back(documents_of(stream_, places, {}, options_.block_size));
    }
  }
  return with_lengths_if_needed(std::move(batch));
}

MaskedBlockBatches::MaskedBlockBatches(TokenStream stream, const Tokenizer& tokenizer,
                                       const BlockOptions& options, const MaskingOptions& masking,
                                       DataPosition start)
    : stream_(std::move(stream)),
      vocabulary_(tokenizer),
      frame_(tokenizer.special().masked()),
      options_(options),
      masking_(masking),
      places_(stream_, options.block_size - frame_.size(), /*behind=*/0, options),
      walk_(places_.plans(), start) {
  masking.validate();
}

BlockBatch MaskedBlockBatches::next() {
  const auto blocks = walk_.next();
  const int64_t epoch = walk_.position().epoch;
  const PhiloxKey key = draw_key(options_.seed, options_.shuffle ? epoch : 0, "data.mask");
  BlockBatch batch = empty_batch(std::ssize(blocks), options_.block_size, stream_.filler());
  int64_t row = 0;
  for (const std::vector<BlockPlace>& places : places_.of(epoch, blocks)) {
    std::vector<int32_t> tokens = frame_.before;
    for (const BlockPlace& place : places) {
      const auto text = stream_.tokens().subspan(static_cast<size_t>(place.begin),
                                                 static_cast<size_t>(place.tokens));
      tokens.insert(tokens.end(), text.begin(), text.end());
    }
    tokens.insert(tokens.end(), frame_.after.begin(), frame_.after.end());
    const MaskedTokens masked =
        mask_tokens(tokens, vocabulary_, masking_, key, blocks[static_cast<size_t>(row)]);
    fill_row(batch, row++, masked.ids, masked.targets);
    if (options_.document_mask) {
      batch.documents.push_back(documents_of(stream_, places, frame_, options_.block_size));
    }
  }
  return with_lengths_if_needed(std::move(batch));
}

BlockBatch rows_of(const BlockBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  BlockBatch part{.ids = rows(batch.ids),
                  .targets = rows(batch.targets),
                  .lengths = rows(batch.lengths),
                  .rows = rows.count(),
                  .indices = rows(batch.indices),
                  .documents = rows(batch.documents)};
  part.tokens = count_targets(part.targets);
  return part;
}

}  // namespace tapestry
