#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/sum_squares_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <numeric>
#include <vector>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tensor_list.h"
#include "core/kernels/sum_squares.h"
#include "core/profile.h"

#ifndef TAPESTRY_SUM_SQUARES_ONCE
#define TAPESTRY_SUM_SQUARES_ONCE
namespace tapestry::kernels {

template <class T>
struct SquaresPieces {
  double (*sum)(const T* x, int64_t n, int64_t*);
  double (*count)(const T* x, int64_t n, int64_t* zeros);  // and the zeros
};

}  // namespace tapestry::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_double(D d, const double* x) {
  return hn::LoadU(d, x);
}

template <class D>
HWY_INLINE hn::Vec<D> load_double(D d, const float* x) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), x));
}

template <class D>
HWY_INLINE hn::Vec<D> load_double(D d, const BFloat16* x) {
  const hn::Rebind<uint32_t, D> bits;
  const auto word = hn::PromoteTo(bits, hn::LoadU(hn::Rebind<uint16_t, D>(), &x->bits));
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<float, D>(), hn::ShiftLeft<16>(word)));
}

// Four running sums hide the latency of the addition. Zeros are counted where `zeros` is given.
template <bool kCounts, class T>
double sum_squares_piece(const T* x, int64_t n, [[maybe_unused]] int64_t* zeros) {
  const hn::ScalableTag<double> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = hn::Lanes(d);
  V a = hn::Zero(d), b = a, c = a, e = a, counted = a;
  const auto count = [&](V v) {
    counted = hn::Add(counted, hn::IfThenElseZero(hn::Eq(v, hn::Zero(d)), hn::Set(d, 1)));
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const V xa = load_double(d, x + i), xb = load_double(d, x + i + lanes);
    const V xc = load_double(d, x + i + 2 * lanes), xe = load_double(d, x + i + 3 * lanes);
    a = hn::MulAdd(xa, xa, a);
    b = hn::MulAdd(xb, xb, b);
    c = hn::MulAdd(xc, xc, c);
    e = hn::MulAdd(xe, xe, e);
    if constexpr (kCounts) count(xa), count(xb), count(xc), count(xe);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  if constexpr (kCounts) *zeros = static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(d, counted)));
  for (; i < n; ++i) {
    const double v = static_cast<Wider<T>>(x[i]);
    sum += v * v;
    if constexpr (kCounts) *zeros += v == 0 ? 1 : 0;
  }
  return sum;
}

template <class T>
constexpr SquaresPieces<T> kPieces = {sum_squares_piece<false, T>, sum_squares_piece<true, T>};

const PerType<SquaresPieces>* squares_pieces() {
  static constexpr PerType<SquaresPieces> pieces = {kPieces<float>, kPieces<double>,
                                                    kPieces<BFloat16>};
  return &pieces;
}

}  // namespace HWY_NAMESPACE
}  // namespace tapestry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry::kernels {
namespace {

HWY_EXPORT(squares_pieces);

template <class T>
double sum_squares_piece(const T* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(squares_pieces)()->of<T>().sum(x, n, nullptr);
}
template <class T>
double count_squares_piece(const T* x, int64_t n, int64_t* zeros) {
  return HWY_DYNAMIC_DISPATCH(squares_pieces)()->of<T>().count(x, n, zeros);
}

}  // namespace

template <class T>
void sum_squares(Cpu, std::span<const ElementSpan<T>> tensors, double* result) {
  const ProfileScope profile(Part::kOptimizer);
  const TensorList list(tensors);
  std::vector<double> partial(list.chunks(), 0.0);
  list.for_each_piece([&](int64_t chunk, size_t tensor, int64_t begin, int64_t end) {
    partial[chunk] += sum_squares_piece(tensors[tensor].x + begin, end - begin);
  });
  add_chunks(Cpu{}, partial.data(), list.chunks(), result);
}

// A piece begins with a chunk or with a tensor: chunk + tensor is a number of its own.
template <class T>
void sum_squares(Cpu, std::span<const ElementSpan<T>> tensors, double* result,
                 std::span<TensorSquares> each) {
  const ProfileScope profile(Part::kOptimizer);
  const TensorList list(tensors);
  struct Piece {
    size_t tensor = 0;
    TensorSquares has;
  };
  std::vector<double> partial(list.chunks(), 0.0);
  std::vector<Piece> pieces(list.chunks() + tensors.size());
  list.for_each_piece([&](int64_t chunk, size_t tensor, int64_t begin, int64_t end) {
    Piece& piece = pieces[chunk + tensor];
    piece.tensor = tensor;
    piece.has.squares =
        count_squares_piece(tensors[tensor].x + begin, end - begin, &piece.has.zeros);
    partial[chunk] += piece.has.squares;
  });
  add_chunks(Cpu{}, partial.data(), list.chunks(), result);
  for (const Piece& piece : pieces) {
    each[piece.tensor].squares += piece.has.squares;
    each[piece.tensor].zeros += piece.has.zeros;
  }
}

template <class T>
void piece_squares(Cpu, const ElementSpan<T>& tensor, int64_t offset,
                   std::vector<TensorSquares>& pieces) {
  const ProfileScope profile(Part::kOptimizer);
  constexpr int64_t kChunk = TensorList::kChunk;
  const int64_t first = offset / kChunk, end = offset + tensor.n;
  pieces.assign(tensor.n == 0 ? 0 : static_cast<size_t>((end - 1) / kChunk - first + 1), {});
  parallel_for(std::ssize(pieces), [&](int64_t i) {
    const int64_t from = std::max(offset, (first + i) * kChunk);
    const int64_t to = std::min(end, (first + i + 1) * kChunk);
    TensorSquares& piece = pieces[static_cast<size_t>(i)];
    piece.squares = count_squares_piece(tensor.x + (from - offset), to - from, &piece.zeros);
  });
}

template <class T>
void chunk_squares(Cpu, const T* x, int64_t n, double* sums) {
  static_assert(kSquaresChunk == TensorList::kChunk);
  const ProfileScope profile(Part::kOptimizer);
  parallel_ranges(n, kSquaresChunk, [&](int64_t begin, int64_t end) {
    sums[begin / kSquaresChunk] = sum_squares_piece(x + begin, end - begin);
  });
}

void add_chunks(Cpu, const double* sums, int64_t count, double* result) {
  *result = std::accumulate(sums, sums + count, 0.0);
}

template void sum_squares(Cpu, std::span<const ElementSpan<float>>, double*);
template void sum_squares(Cpu, std::span<const ElementSpan<double>>, double*);
template void sum_squares(Cpu, std::span<const ElementSpan<BFloat16>>, double*);
template void sum_squares(Cpu, std::span<const ElementSpan<float>>, double*,
                          std::span<TensorSquares>);
template void sum_squares(Cpu, std::span<const ElementSpan<double>>, double*,
                          std::span<TensorSquares>);
template void sum_squares(Cpu, std::span<const ElementSpan<BFloat16>>, double*,
                          std::span<TensorSquares>);
template void piece_squares(Cpu, const ElementSpan<float>&, int64_t, std::vector<TensorSquares>&);
template void piece_squares(Cpu, const ElementSpan<double>&, int64_t, std::vector<TensorSquares>&);
template void piece_squares(Cpu, const ElementSpan<BFloat16>&, int64_t,
                            std::vector<TensorSquares>&);
template void chunk_squares(Cpu, const float*, int64_t, double*);
template void chunk_squares(Cpu, const double*, int64_t, double*);

}  // namespace tapestry::kernels
#endif
