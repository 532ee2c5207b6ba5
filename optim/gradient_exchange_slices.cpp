// The part of a gradient exchange that is in slices: the sums of squares, and the parameters that
// each rank updates.
#include <algorithm>

#include "core/dispatch_device.h"
#include "core/kernels/sum_squares.h"
#include "optim/gradient_exchange.h"

namespace tapestry {
namespace {

constexpr int64_t kChunk = kernels::kSquaresChunk;

}  // namespace

// The sums of squares of this rank's chunks, at their place among those of all ranks: slice after
// slice, each with its part of one bucket after the other. Starts to send them.
Tensor GradientExchange::start_squares(const Tensor& flat) {
  const Tensor sums = Tensor::zeros({elements_ / kChunk}, DType::kFloat64, device_);
  const int64_t own = sums.numel() / ranks_;
  dispatch(flat, [&](auto device, auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, Wider<T>>) {
      if (options_.shard == Shard::kNone) {
        return kernels::chunk_squares(device, flat.data<T>(), elements_, sums.data<double>());
      }
      double* to = sums.data<double>() + communicator_.slice() * own;
      for (const BucketState& bucket : buckets_) {
        const auto [begin, end] = slice_of(bucket, communicator_.slice());
        kernels::chunk_squares(device, flat.data<T>() + begin, end - begin, to);
        to += (end - begin) / kChunk;
      }
    }
  });
  if (options_.shard == Shard::kOptimizer) {
    squares_ticket_ = communicator_.start(
        Exchange::kAllGather, {sums.raw(), sums.numel(), DType::kFloat64, sums, device_});
  }
  return sums;
}

// Adds them in the order of the flat array, wherever they were computed.
void GradientExchange::add_up_squares(const Tensor& sums) {
  Tensor in_order = sums;
  if (options_.shard == Shard::kOptimizer) {
    communicator_.wait(squares_ticket_);
    in_order = Tensor::empty_like(sums);
    int64_t from = 0;
    for (int64_t slice = 0; slice < ranks_; ++slice) {
      for (const BucketState& bucket : buckets_) {
        const auto [begin, end] = slice_of(bucket, slice);
        const int64_t count = (end - begin) / kChunk;
        in_order.slice(begin / kChunk, end / kChunk).copy_from(sums.slice(from, from + count));
        from += count;
      }
    }
  }
  squares_ = Tensor::empty({}, DType::kFloat64, device_);
  dispatch_device(device_, [&](auto device) {
    kernels::add_chunks(device, in_order.data<double>(), in_order.numel(), squares_.data<double>());
  });
}

// Gathers a flat array, of which this rank has its slices.
void GradientExchange::gather_pieces(const Tensor& flat) {
  for (BucketState& bucket : buckets_) {
    if (!bucket.has_cut) continue;
    bucket.ticket = communicator_.start(Exchange::kAllGather, bucket_of(bucket, flat));
  }
  for (const BucketState& bucket : buckets_) {
    if (bucket.has_cut) communicator_.wait(bucket.ticket);
  }
}

// The parameters that belong to one rank as a whole: those of each rank stand in a slice of a
// buffer, a window of them at a time.
void GradientExchange::share_whole() {
  const int64_t window =
      std::min(most_owned_, std::max(kChunk, options_.bucket_bytes / size_of(dtype_)));
  if (window == 0) return;
  const Tensor buffer = Tensor::zeros({ranks_, window}, dtype_, device_);
  for (int64_t begin = 0; begin < most_owned_; begin += window) {
    // What a parameter has in the window, here and there.
    const auto for_each_part = [&](const auto& f) {
      for (const Param& param : params_) {
        if (param.owner < 0) continue;
        const int64_t from = std::max(begin, param.place);
        const int64_t to = std::min(begin + window, param.place + param.end - param.begin);
        if (from >= to) continue;
        f(param,
          param.var.value()
              .reshape({param.end - param.begin})
              .slice(from - param.place, to - param.place),
          buffer.slice(param.owner, param.owner + 1)
              .reshape({window})
              .slice(from - begin, to - begin));
      }
    };
    for_each_part([&](const Param& param, const Tensor& values, const Tensor& place) {
      if (is_mine(param)) place.copy_from(values);
    });
    communicator_.wait(communicator_.start(
        Exchange::kAllGather, {buffer.raw(), buffer.numel(), dtype_, buffer, device_}));
    for_each_part([&](const Param& param, const Tensor& values, const Tensor& place) {
      if (!is_mine(param)) values.copy_from(place);
    });
  }
}

void GradientExchange::share_parameters() {
  if (options_.shard == Shard::kNone || ranks_ == 1) return;
  const bool fits = dtype_ == sum_dtype_;  // reuses the memory of the gradients, which are used up
  const Tensor flat = fits ? flat_buffer() : Tensor::zeros({elements_}, dtype_, device_);
  for (const Piece& piece : pieces_) {
    flat.slice(piece.begin, piece.end).copy_from(piece.var.value());
  }
  gather_pieces(flat);
  for (const Param& param : params_) {
    if (param.owner >= 0) continue;
    param.var.value().copy_from(flat.slice(param.begin, param.end).reshape(param.var.shape()));
  }
  share_whole();
  if (fits) free_.push_back(flat);
}

}  // namespace tapestry
