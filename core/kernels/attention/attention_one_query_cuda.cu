// Attention of one query per sequence, a step of decoding. No key or value is used twice, so
// reading them is the limit.
#include "core/kernels/attention/attention_cuda.cuh"

namespace tapestry {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;  // keys and values that are loaded at a time

// A block per (b, head). kLanes neighbouring lanes are a group: each has a pack of the head size,
// one 16-byte access. The groups take the keys in turn, each with an online softmax of its own; at
// the end these are merged in shared memory.
template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    attention_one_query(AttentionShape shape, AttentionForward<T> args) {
  using W = Wider<T>;
  constexpr int kN = kPack<T>, kGroups = kThreads / kLanes;
  static __shared__ W maxima[kGroups], sums[kGroups], outs[kGroups][kLanes * kN];
  const int64_t head = blockIdx.x % shape.heads, b = blockIdx.x / shape.heads;
  const int64_t source = group_of(shape, head), size = shape.head_size;
  const IndexRange keys = VisibleKeys(shape, b).of_query(0);
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kLanes * kN;
  const bool inside = column < size;
  const W scale = static_cast<W>(shape.scale * kLog2E), infinity = static_cast<W>(INFINITY);
  const auto load = [&](const Rows<const T>& rows, int64_t row, int64_t of_head) {
    return *reinterpret_cast<const Pack<T, kN>*>(at(rows, b, row, of_head, size) + column);
  };

  Pack<T, kN> query = {};
  if (inside) query = load(args.q, 0, head);
  W max = -infinity, sum = 0, out[kN] = {};
  for (int64_t first = keys.first; first < keys.last; first += kAhead * kGroups) {
    Pack<T, kN> key[kAhead] = {}, value[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t j = first + i * kGroups + group;
      if (!inside || j >= keys.last) continue;
      key[i] = load(args.k, j, source);
      value[i] = load(args.v, j, source);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      W score = 0;
      for (int n = 0; n < kN; ++n) score += widen(query.v[n]) * widen(key[i].v[n]);
      for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
        score += __shfl_xor_sync(0xffffffffu, score, lanes);
      }
      // All lanes of the warp reach the reduction above, even those without a key.
      score = first + i * kGroups + group < keys.last ? score * scale : -infinity;
      const W largest = MaxOf()(max, score), shift = largest == -infinity ? W(0) : largest;
      const W shrink = std::exp2(max - shift), weight = std::exp2(score - shift);
      max = largest;
      sum = sum * shrink + weight;
      for (int n = 0; n < kN; ++n) out[n] = out[n] * shrink + weight * widen(value[i].v[n]);
    }
  }

  if (column == 0) maxima[group] = max, sums[group] = sum;
  for (int n = 0; n < kN; ++n) outs[group][column + n] = out[n];
  __syncthreads();
  max = -infinity;
  for (int g = 0; g < kGroups; ++g) max = MaxOf()(max, maxima[g]);
  const W shift = max == -infinity ? W(0) : max;
  W total = 0;
  for (int g = 0; g < kGroups; ++g) total += sums[g] * std::exp2(maxima[g] - shift);
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    W result = 0;
    for (int g = 0; g < kGroups; ++g) result += outs[g][i] * std::exp2(maxima[g] - shift);
    at(args.out, b, 0, head, size)[i] = narrow<T>(total == 0 ? W(0) : result / total);
  }
  if (args.log_sum_exp != nullptr && threadIdx.x == 0) {
    args.log_sum_exp[weight_row(shape, b, head, 0)] = max * static_cast<W>(kLn2) + std::log(total);
  }
}

}  // namespace

template <class T>
bool attend_one_query(const AttentionShape& shape, const AttentionForward<T>& args) {
  const int64_t size = shape.head_size, packs = size / kPack<T>;
  const bool packed =
      can_pack_rows(args.q, size) && can_pack_rows(args.k, size) && can_pack_rows(args.v, size);
  if (shape.queries != 1 || shape.dropout.p > 0 || !packed || packs > kWarp) return false;
  if (args.bias.any() || shape.value_size != size) return false;
  launch({.kernel = "attention (one query)",
          .grid = static_cast<unsigned>(shape.batch * shape.heads),
          .block = kThreads},
         packs <= 4    ? attention_one_query<T, 4>
         : packs <= 8  ? attention_one_query<T, 8>
         : packs <= 16 ? attention_one_query<T, 16>
                       : attention_one_query<T, 32>,
         shape, args);
  return true;
}

template bool attend_one_query(const AttentionShape&, const AttentionForward<float>&);
template bool attend_one_query(const AttentionShape&, const AttentionForward<double>&);
template bool attend_one_query(const AttentionShape&, const AttentionForward<BFloat16>&);

}  // namespace tapestry
