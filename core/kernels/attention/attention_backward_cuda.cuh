// One tile of weights in the backward pass of attention on CUDA.
#pragma once

#include "core/kernels/attention/attention_cuda.cuh"

namespace tapestry {

/// Own rows against passing rows: a tile of P' and dS. kOfKeys: own rows are keys and values,
/// passing ones queries and d_out; otherwise the other way round. With own rows A1, A2 and passing
/// rows B1, B2: scores = A1 B1^T, d_weights = A2 B2^T.
template <class T, int kSize, bool kOfKeys>
struct GradientTile {
  using W = Wider<T>;
  using Tile = AttentionTile<W, kSize>;
  static constexpr int kRows = Tile::kRows, kEach = Tile::kEach;

  const AttentionShape& shape;
  const AttentionBackward<T>& args;
  const W* deltas;  ///< (B, H, T): rowsum(dO * O)
  const DropoutFactors<T>& dropout;
  bool packed;  ///< whether rows can be read in packs
  int64_t b;
  VisibleKeys visible;
  W *own[2], *passing[2];
  /// dS are those of the scores behind a softcap, not those of the capped ones.
  bool behind_softcap = true;

  /// Shared memory that own and passing rows need.
  static constexpr int64_t kBytes = 4 * Tile::kBytes;

  __device__ GradientTile(const AttentionShape& shape, const AttentionBackward<T>& args,
                          const W* deltas, const DropoutFactors<T>& dropout, bool packed, int64_t b)
      : shape(shape),
        args(args),
        deltas(deltas),
        dropout(dropout),
        packed(packed),
        b(b),
        visible(shape, b) {
    constexpr int kStep = kRows * Tile::kStride;
    own[0] = dynamic_shared<W>(), own[1] = own[0] + kStep;
    passing[0] = own[1] + kStep, passing[1] = passing[0] + kStep;
  }
  /// Memory behind those rows, for a tile of weights.
  __device__ W* weights() const { return passing[1] + kRows * Tile::kStride; }

  /// `head` is one of keys or of queries.
  __device__ void load_own(int64_t head, int64_t row, int64_t count) const {
    load(own, kOfKeys, head, row, count);
  }
  __device__ void load_passing(int64_t head, int64_t row, int64_t count) const {
    load(passing, !kOfKeys, head, row, count);
  }

  /// Own rows from `first` on and passing rows from `other` on, of query head `head`.
  __device__ void compute(int64_t head, int64_t first, int64_t other, typename Tile::Weights& p,
                          typename Tile::Weights& ds) const {
    const W scale = static_cast<W>(shape.scale * kLog2E), log2_e = static_cast<W>(kLog2E);
    const int64_t head_row = weight_row(shape, b, head, 0);
    Tile::multiply_rows(own[0], passing[0], static_cast<int>(shape.head_size), p);
    Tile::multiply_rows(own[1], passing[1], static_cast<int>(shape.value_size), ds);
    W lse[kEach], delta[kEach];  // of the queries that the thread's rows or columns are
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int64_t t = kOfKeys ? other + Tile::column(e) : first + Tile::row(e);
      const bool there = t < shape.queries;
      lse[e] = there ? args.log_sum_exp[head_row + t] : W(0);
      // A row whose keys are all hidden has no weights.
      if (lse[e] == -static_cast<W>(INFINITY)) lse[e] = static_cast<W>(INFINITY);
      delta[e] = there ? deltas[head_row + t] : W(0);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t row = first + Tile::row(i), column = other + Tile::column(j);
        const int64_t t = kOfKeys ? column : row, key = kOfKeys ? row : column;
        W weight = 0, d_score = 0;
        if (t < shape.queries && visible.of_query(t).has(key)) {
          const int e = kOfKeys ? j : i;
          const auto draw = static_cast<uint64_t>(weight_index(shape, head_row + t, key));
          const W factor = dropout.at(draw);
          W score = p[i][j] * scale, slope = 1;
          if (shape.softcap > 0) {
            const CappedScore<W> capped = capped_score(shape, p[i][j]);
            score = capped.power_of_two(shape);
            if (behind_softcap) slope = capped.slope();
          }
          if (args.bias.any()) score += log2_e * bias_at(shape, args.bias, b, head, t, key);
          weight = std::exp2(score - lse[e] * log2_e);
          d_score = weight * (factor * ds[i][j] - delta[e]);
          if (shape.softcap > 0) d_score *= slope;
          weight *= factor;
        }
        p[i][j] = weight;
        ds[i][j] = d_score;
      }
    }
  }

 private:
  __device__ void load(W* const (&tiles)[2], bool keys, int64_t head, int64_t row,
                       int64_t count) const {
    const Rows<const T>&x = keys ? args.k : args.q, &y = keys ? args.v : args.d_out;
    const int64_t size = shape.head_size, value_size = shape.value_size;
    Tile::load(tiles[0], at(x, b, row, head, size), x.row_stride, count, static_cast<int>(size),
               packed);
    Tile::load(tiles[1], at(y, b, row, head, value_size), y.row_stride, count,
               static_cast<int>(value_size), packed);
  }
};

/// Whether the rows of all operands of GradientTile can be read in packs.
template <class T>
bool can_pack_operands(const AttentionShape& shape, const AttentionBackward<T>& args) {
  return can_pack_rows(args.q, shape.head_size) && can_pack_rows(args.k, shape.head_size) &&
         can_pack_rows(args.v, shape.value_size) && can_pack_rows(args.d_out, shape.value_size);
}

}  // namespace tapestry
