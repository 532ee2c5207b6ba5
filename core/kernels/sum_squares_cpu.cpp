#include "core/kernels/sum_squares.h"

#include <numeric>
#include <vector>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tensor_list.h"
#include "core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/sum_squares_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_SUM_SQUARES_ONCE
#define TAPESTRY_SUM_SQUARES_ONCE
namespace tapestry {

template <class T>
struct SquaresPieces {
  double (*sum)(const T* x, int64_t n, int64_t*);
  double (*count)(const T* x, int64_t n, int64_t* zeros);  // and the zeros
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

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

// Four lines of sums hide the latency of the addition. Zeros are counted where `zeros` is given.
template <bool kCounts, class T>
double sum_squares_piece(const T* x, int64_t n, [[maybe_unused]] int64_t* zeros) {
  const Tag<double> d;
  constexpr int64_t kLanes = hn::MaxLanes(d), kLine = kLineVectors<double> * kLanes;
  constexpr int kLines = 4;
  LineSums<double> sums[kLines], counted;
  int64_t i = 0;
  for (; i + kLines * kLine <= n; i += kLines * kLine) {
    each_part<double>([&](auto part) HWY_ATTR {
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) {
        const auto v = load_double(d, x + i + line * kLine + part * kLanes);
        sums[line][part] = hn::MulAdd(v, v, sums[line][part]);
        if constexpr (kCounts) {
          const auto zero = hn::Eq(v, hn::Zero(d));
          counted[part] = hn::Add(counted[part], hn::IfThenElseZero(zero, hn::Set(d, 1)));
        }
      }
    });
  }
  sums[0].add(sums[1]);
  sums[2].add(sums[3]);
  sums[0].add(sums[2]);
  double sum = sums[0].total();
  if constexpr (kCounts) *zeros = static_cast<int64_t>(counted.total());
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
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

namespace kernels {

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

}  // namespace kernels
}  // namespace tapestry
#endif
