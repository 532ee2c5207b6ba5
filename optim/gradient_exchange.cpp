#include "optim/gradient_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "core/base/clock.h"
#include "core/dispatch_device.h"
#include "core/kernels/sum_squares.h"
#include "core/kernels/tree_add.h"

namespace tapestry {
namespace {

constexpr int64_t kChunk = kernels::kSquaresChunk;

// `count` numbers as bytes to send.
template <class T>
std::string bytes_of(const T* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

// The reverse; takes them off the front of `bytes`.
template <class T>
std::vector<T> take_values(std::string_view& bytes, size_t count) {
  check(bytes.size() >= count * sizeof(T), "exchange", "expected ", count * sizeof(T),
        " bytes from another rank, got ", bytes.size(), '.');
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return values;
}

ExchangeOptions usable(ExchangeOptions options, const Communicator& communicator) {
  if (communicator.size() == 1) options.shard = Shard::kNone;
  // A piece of a bucket is one message.
  options.bucket_bytes = std::min(options.bucket_bytes, Transport::kLargestMessage);
  return options;
}

}  // namespace

// Called when the gradient of a parameter is complete.
struct GradientExchange::Leaf final : GradientListener {
  Leaf(GradientExchange& exchange, size_t param) : exchange(exchange), param(param) {}
  void complete(Gradient&) override {
    if (exchange.open_) exchange.complete(param);
  }
  GradientExchange& exchange;
  size_t param;
};

bool parts_fit(int64_t parts, int64_t ranks) {
  if (parts < 1 || ranks < 1 || parts % ranks != 0) return false;
  return ranks == 1 || std::has_single_bit(static_cast<uint64_t>(parts / ranks));
}

GradientExchange::GradientExchange(Communicator& communicator,
                                   const std::vector<ParamGroup>& groups,
                                   const ExchangeOptions& options)
    : communicator_(communicator),
      options_(usable(options, communicator)),
      ranks_(communicator.size()),
      local_parts_(options.parts / ranks_),
      owned_(groups) {
  if (!parts_fit(options.parts, ranks_)) {
    fail(ErrorKind::kConfig, "[exchange] ", options.parts, " parts cannot be shared by ", ranks_,
         " ranks: as many must come on each, and their number on a rank must be a power of two.");
  }
  for (const ParamGroup& group : groups) {
    for (const auto& [name, var] : group.params) {
      if (params_.empty()) {
        dtype_ = var.dtype();
        sum_dtype_ = wider(dtype_);
        device_ = var.value().device();
      }
      const int64_t begin = params_.empty() ? 0 : params_.back().end;
      params_.push_back({name, var, begin, begin + var.value().numel()});
      check(var.dtype() == dtype_ && var.value().device() == device_, "exchange", "'", name,
            "' is ", var.dtype(), " on ", var.value().device(), ", '", params_.front().name, "' ",
            dtype_, " on ", device_, '.');
    }
  }
  check(ranks_ == 1 || device_.is_cpu() || communicator.connects_gpus(), "exchange",
        "gradients on ", device_, " need Communicator::connect_gpus().");
  find_owners(groups);
  cut_into_buckets();
  cut_own_pieces();
  for (size_t i = 0; i < params_.size(); ++i) {
    leaves_.push_back(std::make_unique<Leaf>(*this, i));
    params_[i].var.set_listener(leaves_.back().get());
  }
  reached_.resize(params_.size());
  delivered_.resize(params_.size());
}

GradientExchange::~GradientExchange() {
  for (const Param& param : params_) {
    try {
      param.var.set_listener(nullptr);
    } catch (const Error&) {
      // A tape that an error left behind holds uses. It is not walked any more.
    }
  }
}

// The matrices that are dearest come first, each to the rank that has least to do.
void GradientExchange::find_owners(const std::vector<ParamGroup>& groups) {
  if (options_.shard == Shard::kNone) return;
  std::vector<size_t> whole;
  size_t next = 0;
  for (const ParamGroup& group : groups) {
    for (size_t i = 0; i < group.params.size(); ++i, ++next) {
      if (group.orthogonalize) whole.push_back(next);
    }
  }
  const auto cost = [&](size_t p) {
    const Shape& shape = params_[p].var.shape();
    return static_cast<double>(shape.numel()) *
           static_cast<double>(std::min(shape[0], shape[shape.rank() - 1]));
  };
  std::ranges::stable_sort(whole, std::greater<>(), cost);
  const auto slices = static_cast<size_t>(ranks_);
  std::vector<double> work(slices, 0);
  std::vector<int64_t> owned(slices, 0);
  for (const size_t p : whole) {
    const auto owner = static_cast<size_t>(std::ranges::min_element(work) - work.begin());
    work[owner] += cost(p);
    params_[p].owner = static_cast<int64_t>(owner);
    params_[p].place = owned[owner];
    owned[owner] += params_[p].end - params_[p].begin;
  }
  most_owned_ = std::ranges::max(owned);
}

void GradientExchange::cut_into_buckets() {
  const int64_t elements = params_.empty() ? 0 : params_.back().end;
  const int64_t row = kChunk * ranks_;  // a chunk for each rank
  elements_ = (elements + row - 1) / row * row;
  const int64_t rows = std::max<int64_t>(1, options_.bucket_bytes / (row * size_of(sum_dtype_)));
  size_t first = 0;
  for (int64_t begin = 0; begin < elements_; begin += rows * row) {
    const int64_t end = std::min(elements_, begin + rows * row);
    while (first < params_.size() && params_[first].end <= begin) ++first;
    size_t last = first;
    while (last < params_.size() && params_[last].begin < end) ++last;
    BucketState& bucket = buckets_.emplace_back(
        BucketState{begin, end, static_cast<int64_t>(first), static_cast<int64_t>(last)});
    const auto is_whole = [](const Param& param) { return param.owner >= 0; };
    const std::span inside(params_.begin() + static_cast<int64_t>(first), last - first);
    bucket.has_whole = std::ranges::any_of(inside, is_whole);
    bucket.has_cut = !std::ranges::all_of(inside, is_whole);
  }
  // Backward comes to the last layers first.
  order_.resize(buckets_.size());
  std::iota(order_.rbegin(), order_.rend(), size_t{0});
}

std::pair<int64_t, int64_t> GradientExchange::slice_of(const BucketState& bucket,
                                                       int64_t slice) const {
  const int64_t length = (bucket.end - bucket.begin) / ranks_;
  return {bucket.begin + slice * length, bucket.begin + (slice + 1) * length};
}

void GradientExchange::cut_own_pieces() {
  if (options_.shard == Shard::kNone) return;
  std::vector<std::vector<size_t>> pieces_of(params_.size());
  for (const BucketState& bucket : buckets_) {
    const auto [begin, end] = slice_of(bucket, communicator_.slice());
    for (int64_t p = bucket.first; p < bucket.last; ++p) {
      const Param& param = params_[static_cast<size_t>(p)];
      if (param.owner >= 0) continue;
      const int64_t from = std::max(begin, param.begin), to = std::min(end, param.end);
      if (from >= to) continue;
      const Tensor flat = param.var.value().reshape({param.var.value().numel()});
      pieces_of[static_cast<size_t>(p)].push_back(pieces_.size());
      const int64_t first = from - param.begin, last = to - param.begin;
      pieces_.push_back({concat(param.name, '[', first, ':', last, ']'), static_cast<size_t>(p),
                         from, to, Var::parameter(flat.slice(first, last))});
    }
  }
  size_t param = 0;
  for (ParamGroup& group : owned_) {
    NamedVars own;
    for (size_t i = 0; i < group.params.size(); ++i, ++param) {
      if (is_mine(params_[param])) own.push_back(group.params[i]);
      for (const size_t piece : pieces_of[param]) {
        own.emplace_back(pieces_[piece].name, pieces_[piece].var);
      }
    }
    group.params = std::move(own);
  }
}

// ---- One update

Tensor GradientExchange::flat_buffer() {
  if (free_.empty()) return Tensor::zeros({elements_}, sum_dtype_, device_);
  const Tensor flat = free_.back();
  free_.pop_back();
  return flat;
}

void GradientExchange::open_part() {
  check(!open_ && part_ < local_parts_, "exchange", "part ", part_, " of ", local_parts_,
        " cannot be opened now.");
  last_ = part_ + 1 == local_parts_;
  const size_t pops =
      last_ ? stack_.size() : static_cast<size_t>(std::countr_one(static_cast<uint64_t>(part_)));
  sums_.assign(stack_.rbegin(), stack_.rbegin() + static_cast<int64_t>(pops));
  stack_.resize(stack_.size() - pops);
  // The part's gradients are written over the oldest sums that they are added to.
  target_ = sums_.empty() ? flat_buffer() : sums_.back();
  std::fill(delivered_.begin(), delivered_.end(), false);
  if (last_) {
    for (BucketState& bucket : buckets_) bucket.missing = bucket.last - bucket.first;
    started_ = 0;
  }
  open_ = true;
}

// A backward pass has added all that it will to a parameter's gradient.
void GradientExchange::complete(size_t index) {
  // A delivered gradient may be on its way to other ranks.
  check(!delivered_[index], "exchange",
        "expected one backward pass in a part once it is open, got "
        "another one that reaches '",
        params_[index].name, "'.");
  deliver(index);
}

// The gradient of a parameter is complete in this part, or nothing will come.
void GradientExchange::deliver(size_t index) {
  delivered_[index] = true;
  const Param& param = params_[index];
  Gradient& gradient = *param.var.gradient();
  const bool filled = gradient.filled();
  if (filled) reached_[index] = true;
  const Tensor leaf = filled ? gradient.take().to(sum_dtype_)
                             : Tensor::zeros(param.var.shape(), sum_dtype_, device_);
  dispatch(leaf, [&](auto device, auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, Wider<T>>) {
      std::vector<const T*> sums;
      for (const Tensor& sum : sums_) sums.push_back(sum.data<T>() + param.begin);
      kernels::add_in_order<T>(device, leaf.data<T>(), sums, target_.data<T>() + param.begin,
                               leaf.numel());
    }
  });
  if (!last_) return;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    BucketState& bucket = buckets_[b];
    const auto at = static_cast<int64_t>(index);
    if (at < bucket.first || at >= bucket.last) continue;
    if (--bucket.missing > 0) continue;
    bucket.completed = steady_seconds();
    if (!order_known_) completed_.push_back(b);
  }
  start_buckets();
}

Bucket GradientExchange::bucket_of(const BucketState& bucket, const Tensor& flat) const {
  char* const data = static_cast<char*>(flat.raw()) + bucket.begin * size_of(flat.dtype());
  return {data, bucket.end - bucket.begin, flat.dtype(), flat, device_};
}

// A bucket goes when it is complete and all before it went: so the order is the same everywhere.
void GradientExchange::start_buckets() {
  if (ranks_ == 1) return;
  for (; started_ < order_.size(); ++started_) {
    BucketState& bucket = buckets_[order_[started_]];
    if (bucket.missing > 0) return;
    // A parameter that belongs to one rank may lie in the slices of several.
    const bool whole = options_.shard == Shard::kNone || bucket.has_whole;
    const Exchange exchange = whole ? Exchange::kAllReduce : Exchange::kReduceScatter;
    bucket.ticket = communicator_.start(exchange, bucket_of(bucket, target_));
  }
}

void GradientExchange::close_part() {
  check(open_, "exchange", "no part is open.");
  closed_ = steady_seconds();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!delivered_[i]) deliver(i);
  }
  open_ = false;
  if (!sums_.empty()) sums_.pop_back();  // the target
  free_.insert(free_.end(), sums_.begin(), sums_.end());
  sums_.clear();
  stack_.push_back(std::move(target_));
  ++part_;
}

std::vector<std::string> GradientExchange::finish(const std::string& word) {
  check(!open_ && part_ == local_parts_, "exchange", "finish() after ", part_, " of ", local_parts_,
        " parts.");
  const double before = steady_seconds();
  for (const BucketState& bucket : buckets_) {
    if (ranks_ > 1) communicator_.wait(bucket.ticket);
  }
  const Tensor flat = stack_.back();
  const Tensor squares = start_squares(flat);
  std::vector<uint8_t> reached(reached_.begin(), reached_.end());
  const size_t prefix = reached.size();
  std::vector<std::string> words =
      communicator_.all_gather(bytes_of(reached.data(), prefix) + word);
  add_up_squares(squares);
  seconds_waited_ += steady_seconds() - before;
  for (std::string& other : words) {
    for (size_t i = 0; i < prefix; ++i) reached[i] |= static_cast<uint8_t>(other.at(i));
    other.erase(0, prefix);
  }

  const auto give = [&](const Var& var, size_t param, int64_t begin, int64_t end) {
    if (reached[param] != 0) var.gradient()->accept(flat.slice(begin, end));
  };
  if (options_.shard == Shard::kOptimizer) {
    for (const Piece& piece : pieces_) give(piece.var, piece.param, piece.begin, piece.end);
    for (size_t i = 0; i < params_.size(); ++i) {
      if (is_mine(params_[i])) give(params_[i].var, i, params_[i].begin, params_[i].end);
    }
  } else {
    for (size_t i = 0; i < params_.size(); ++i) {
      give(params_[i].var, i, params_[i].begin, params_[i].end);
    }
  }
  // After the first update all ranks send buckets in the order in which rank 0 completed them.
  if (!order_known_) {
    const std::string order =
        communicator_.broadcast(bytes_of(completed_.data(), completed_.size()));
    std::string_view bytes = order;
    order_ = take_values<size_t>(bytes, buckets_.size());
    order_known_ = true;
  }
  std::fill(reached_.begin(), reached_.end(), false);
  free_.insert(free_.end(), stack_.begin(), stack_.end());
  stack_.clear();
  part_ = 0;
  return words;
}

std::vector<BucketReady> GradientExchange::ready() const {
  std::vector<BucketReady> ready;
  for (const size_t b : order_) {
    const BucketState& bucket = buckets_[b];
    ready.push_back({static_cast<double>((bucket.end - bucket.begin) * size_of(sum_dtype_)),
                     std::max(0., closed_ - bucket.completed)});
  }
  return ready;
}

}  // namespace tapestry
