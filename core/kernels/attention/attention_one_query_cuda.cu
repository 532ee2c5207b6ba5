// Attention of one query per sequence, a step of decoding. No key or value is used twice, so
// reading them is the limit.
#include "core/kernels/attention/attention_cuda.cuh"

namespace tapestry {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;              // keys and values that are loaded at a time
constexpr int64_t kMostColumns = 256;  // of a head

// A block per (b, head). kLanes neighbouring lanes are a group: each has kN columns of a head, with
// kPacked in one access of 16 bytes. The groups take the keys in turn, each with an online softmax
// of its own; at the end these are merged in shared memory.
template <class T, int kLanes, int kN, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    attention_one_query(AttentionShape whole, AttentionForward<T> args) {
  using W = Wider<T>;
  constexpr int kGroups = kThreads / kLanes;
  static __shared__ W maxima[kGroups], sums[kGroups], outs[kGroups][kLanes * kN];
  const int64_t head = blockIdx.x % whole.heads, b = blockIdx.x / whole.heads;
  const AttentionShape shape = shape_of(whole, b);
  const int64_t source = group_of(shape, head);
  const int64_t size = shape.head_size, value_size = shape.value_size;
  const IndexRange keys = VisibleKeys(shape, b).of_query(0);
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kLanes * kN;
  const W scale = static_cast<W>(shape.scale * kLog2E), infinity = static_cast<W>(INFINITY);
  // Zeros behind the columns of the head.
  const auto load = [&](const Rows<const T>& rows, int64_t row, int64_t of_head, int64_t columns) {
    const T* const from = at(rows, b, row, of_head, columns) + column;
    Pack<T, kN> pack = {};
    if constexpr (kPacked) {
      if (column < columns) pack = *reinterpret_cast<const Pack<T, kN>*>(from);
    } else {
      for (int n = 0; n < kN; ++n) {
        if (column + n < columns) pack.v[n] = from[n];
      }
    }
    return pack;
  };

  const Pack<T, kN> query = load(args.q, 0, head, size);
  W max = -infinity, sum = 0, out[kN] = {};
  for (int64_t first = keys.first; first < keys.last; first += kAhead * kGroups) {
    Pack<T, kN> key[kAhead] = {}, value[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t j = first + i * kGroups + group;
      if (j >= keys.last) continue;
      const int64_t row = key_row(shape, b, j);
      key[i] = load(args.k, row, source, size);
      value[i] = load(args.v, row, source, value_size);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      W score = 0;
      for (int n = 0; n < kN; ++n) score += widen(query.v[n]) * widen(key[i].v[n]);
      for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
        score += __shfl_xor_sync(0xffffffffu, score, lanes);
      }
      // All lanes of the warp reach the reduction above, even those without a key.
      const int64_t j = first + i * kGroups + group;
      if (j < keys.last) {
        score = shape.softcap > 0 ? capped_score(shape, score).power_of_two(shape) : score * scale;
        if (args.bias.any()) {
          score += static_cast<W>(kLog2E) * bias_at(shape, args.bias, b, head, 0, j);
        }
      } else {
        score = -infinity;
      }
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
  for (int64_t i = threadIdx.x; i < value_size; i += kThreads) {
    W result = 0;
    for (int g = 0; g < kGroups; ++g) result += outs[g][i] * std::exp2(maxima[g] - shift);
    at(args.out, b, 0, head, value_size)[i] = narrow<T>(total == 0 ? W(0) : result / total);
  }
  if (args.log_sum_exp != nullptr && threadIdx.x == 0) {
    args.log_sum_exp[weight_row(shape, b, head, 0)] = max * static_cast<W>(kLn2) + std::log(total);
  }
}

}  // namespace

template <class T>
bool attend_one_query(const AttentionShape& shape, const AttentionForward<T>& args) {
  if (shape.queries != 1 || shape.dropout.p > 0 || shape.starts != nullptr) return false;
  const int64_t size = std::max(shape.head_size, shape.value_size), packs = size / kPack<T>;
  check(size <= kMostColumns, "attention", "the CUDA kernels go up to head size ", kMostColumns,
        ", got ", size, '.');
  const bool packed = packs <= kWarp && can_pack_rows(args.q, shape.head_size) &&
                      can_pack_rows(args.k, shape.head_size) &&
                      can_pack_rows(args.v, shape.value_size);
  constexpr int kN = kPack<T>;
  launch({.kernel = "attention (one query)",
          .grid = static_cast<unsigned>(shape.batch * shape.heads),
          .block = kThreads},
         !packed       ? attention_one_query<T, kWarp, kMostColumns / kWarp, false>
         : packs <= 4  ? attention_one_query<T, 4, kN, true>
         : packs <= 8  ? attention_one_query<T, 8, kN, true>
         : packs <= 16 ? attention_one_query<T, 16, kN, true>
                       : attention_one_query<T, 32, kN, true>,
         shape, args);
  return true;
}

template bool attend_one_query(const AttentionShape&, const AttentionForward<float>&);
template bool attend_one_query(const AttentionShape&, const AttentionForward<double>&);
template bool attend_one_query(const AttentionShape&, const AttentionForward<BFloat16>&);

}  // namespace tapestry
