#include "core/kernels/optimizer.h"

#include <type_traits>
#include <variant>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tensor_list.h"
#include "core/kernels/optimizer_float8.h"
#include "core/kernels/optimizer_functors.h"
#include "core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/optimizer_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_OPTIMIZER_ONCE
#define TAPESTRY_OPTIMIZER_ONCE
namespace tapestry {

template <class T>
struct OptimizerPieces {
  // Elements [begin, end) of a tensor.
  void (*update)(const ParameterUpdate<T>&, const GradientTransform&, int64_t begin, int64_t end);
  void (*average)(double decay, const AverageUpdate<T>&, int64_t begin, int64_t end);
};

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// The vector forms of optimizer_functors.h, on Lanes(d) elements. Multiplications that feed an
// addition are fused; otherwise the same operations in the same order.

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const SgdRule<T>& r, V& p, V g, V*) {
  g = hn::MulAdd(hn::Set(d, r.weight_decay), p, g);
  p = hn::NegMulAdd(hn::Set(d, r.lr), g, p);
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const MomentumRule<T>& r, V& p, V g, V* state) {
  V& v = state[0];
  const V momentum = hn::Set(d, r.momentum);
  g = hn::MulAdd(hn::Set(d, r.weight_decay), p, g);
  v = hn::MulAdd(momentum, v, g);
  p = hn::NegMulAdd(hn::Set(d, r.lr), r.nesterov ? hn::MulAdd(momentum, v, g) : v, p);
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const AdagradRule<T>& r, V& p, V g, V* state) {
  V& sum = state[0];
  g = hn::MulAdd(hn::Set(d, r.weight_decay), p, g);
  sum = hn::MulAdd(g, g, sum);
  const V root = hn::Add(hn::Sqrt(sum), hn::Set(d, r.eps));
  p = hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, r.lr), g), root));
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const RmspropRule<T>& r, V& p, V g, V* state) {
  V& square = state[0];
  g = hn::MulAdd(hn::Set(d, r.weight_decay), p, g);
  square = hn::MulAdd(hn::Set(d, r.alpha), square,
                      hn::Mul(hn::Set(d, r.one_minus_alpha), hn::Mul(g, g)));
  const V root = hn::Add(hn::Sqrt(square), hn::Set(d, r.eps));
  p = hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, r.lr), g), root));
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const AdadeltaRule<T>& r, V& p, V g, V* state) {
  V& square = state[0];
  V& accumulated = state[1];
  const V rho = hn::Set(d, r.rho);
  const V one_minus_rho = hn::Set(d, r.one_minus_rho);
  const V eps = hn::Set(d, r.eps);
  g = hn::MulAdd(hn::Set(d, r.weight_decay), p, g);
  square = hn::MulAdd(rho, square, hn::Mul(one_minus_rho, hn::Mul(g, g)));
  const V ratio = hn::Div(hn::Sqrt(hn::Add(accumulated, eps)), hn::Sqrt(hn::Add(square, eps)));
  const V update = hn::Mul(ratio, g);
  accumulated = hn::MulAdd(rho, accumulated, hn::Mul(one_minus_rho, hn::Mul(update, update)));
  p = hn::NegMulAdd(hn::Set(d, r.lr), update, p);
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const AdamRule<T>& r, V& p, V g, V* state) {
  V& m = state[0];
  V& v = state[1];
  g = hn::MulAdd(hn::Set(d, r.weight_decay), p, g);
  m = hn::MulAdd(hn::Set(d, r.beta1), m, hn::Mul(hn::Set(d, r.one_minus_beta1), g));
  v = hn::MulAdd(hn::Set(d, r.beta2), v, hn::Mul(hn::Set(d, r.one_minus_beta2), hn::Mul(g, g)));
  const V root = hn::MulAdd(hn::Sqrt(v), hn::Set(d, r.root_scale), hn::Set(d, r.eps));
  p = hn::NegMulAdd(hn::Set(d, r.step_size), hn::Div(m, root), hn::Mul(hn::Set(d, r.shrink), p));
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const MuonMomentumRule<T>& r, V& p, V g, V* state) {
  V& v = state[0];
  v = hn::MulAdd(hn::Set(d, r.one_minus_momentum), hn::Sub(g, v), v);
  p = r.nesterov ? hn::MulAdd(hn::Set(d, r.momentum), hn::Sub(v, g), g) : v;
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const MuonRowsRule<T>& r, V& p, V g, V* state) {
  V& v = state[0];
  v = hn::MulAdd(hn::Set(d, r.one_minus_beta2), hn::Sub(g, v), v);
  p = hn::Div(hn::Set(d, T(1)), hn::Sqrt(hn::Max(v, hn::Set(d, r.least()))));
}

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE void apply(D d, const MuonRule<T>& r, V& p, V g, V*) {
  V kept = hn::Mul(hn::Set(d, r.shrink), p);
  if (r.cautious) kept = hn::IfThenElse(hn::Lt(hn::Mul(g, p), hn::Zero(d)), p, kept);
  p = hn::NegMulAdd(hn::Set(d, r.lr), g, kept);
}

// Elements from i on of the array that is not null.
template <class Io, class D, class T>
HWY_INLINE hn::Vec<D> load_either(Io io, D d, const hn::TFromD<D>* wide, const T* other,
                                  int64_t i) {
  return wide != nullptr ? io.load(d, wide + i) : io.load(d, other + i);
}

// The vector form of rounded_at_random(), to memory.
template <class Io, class D, class U = hn::RebindToUnsigned<D>>
HWY_INLINE void store_rounded(Io io, D d, hn::Vec<D> v, hn::Vec<U> draw, BFloat16* p) {
  const U bits;
  const auto number = hn::BitCast(bits, v);
  auto x = hn::Xor(number, draw);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(bits, 0x7feb352dU));
  const auto upper = hn::ShiftRight<16>(hn::Add(number, hn::ShiftRight<16>(x)));
  if constexpr (std::is_same_v<Io, Whole>) {
    hn::StoreU(hn::TruncateTo(Halves<D>(), upper), Halves<D>(), &p->bits);
  } else {
    io.store(d, hn::BitCast(d, hn::ShiftLeft<16>(upper)), p);
  }
}

// The last elements go through whole vectors, too: an element's result must not depend on where a
// piece ends.
template <int kStates, bool kRounded, class T, class Rule>
void update_with(const Rule& rule, const ParameterUpdate<T>& update,
                 const GradientTransform& transform, int64_t begin, int64_t end) {
  using W = Wider<T>;
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const V scale = hn::Set(d, static_cast<W>(transform.scale));
  const V limit = hn::Set(d, static_cast<W>(transform.limit));
  T* const param = update.param;
  W* const master = update.master;
  const T* const grad = update.grad;
  const W* const wide_grad = update.wide_grad;
  const auto state = update.state;
  each_vector(d, end - begin, [&](auto io, int64_t from_begin) HWY_ATTR {
    const int64_t i = begin + from_begin;
    V p = load_either(io, d, master, param, i);
    V g = hn::Mul(scale, load_either(io, d, wide_grad, grad, i));
    g = hn::Min(hn::Max(g, hn::Neg(limit)), limit);
    V s[kStates + 1];
    for (int k = 0; k < kStates; ++k) {
      if constexpr (kRounded) {
        s[k] = io.load(d, update.rounded_state[static_cast<size_t>(k)] + i);
      } else {
        s[k] = io.load(d, state[k] + i);
      }
    }
    const V drawn_by = g;
    apply(d, rule, p, g, s);
    if (master != nullptr) io.store(d, p, master + i);
    io.store(d, p, param + i);
    if constexpr (kRounded) {
      const hn::RebindToUnsigned<Tag<T>> bits;
      const auto draw = hn::Add(hn::Mul(hn::BitCast(bits, drawn_by), hn::Set(bits, 0x9e3779b1U)),
                                hn::Set(bits, rounding_draw(0, update.number)));
      for (int k = 0; k < kStates; ++k) {
        store_rounded(io, d, s[k], draw, update.rounded_state[static_cast<size_t>(k)] + i);
      }
    } else {
      for (int k = 0; k < kStates; ++k) io.store(d, s[k], state[k] + i);
    }
  });
}

// The vector forms of Float8, of a block.
inline void decode(Float8 format, const uint8_t* codes, float scale, float* values) {
  const Tag<float> d;
  const hn::RebindToUnsigned<Tag<float>> bits;
  const hn::Rebind<uint8_t, Tag<float>> bytes;
  const auto most = hn::Set(bits, format.most()), bias = hn::Set(bits, format.bias());
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kStateBlock; i += lanes) {
    const auto code = hn::PromoteTo(bits, hn::LoadU(bytes, codes + i));
    const auto magnitude = hn::And(code, most);
    auto value = hn::Add(hn::ShiftLeft<20>(magnitude), bias);
    value = hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(bits)), value);
    value = hn::Or(value, hn::ShiftLeft<24>(hn::AndNot(most, code)));
    hn::StoreU(hn::Mul(hn::BitCast(d, value), hn::Set(d, scale)), d, values + i);
  }
}

inline void encode(Float8 format, const float* values, uint32_t first, uint32_t number, uint32_t k,
                   uint8_t* codes, float* scale) {
  const Tag<float> d;
  const hn::RebindToUnsigned<Tag<float>> bits;
  const hn::RebindToSigned<Tag<float>> integers;
  const hn::Rebind<uint8_t, Tag<float>> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  for (int64_t i = 0; i < kStateBlock; i += lanes) {
    largest = hn::Max(largest, hn::Abs(hn::LoadU(d, values + i)));
  }
  *scale = float8_scale(hn::GetLane(hn::MaxOfLanes(d, largest)));
  const auto inverse = hn::Set(d, 1 / *scale);
  const auto least = hn::BitCast(d, hn::Set(bits, format.least()));
  const auto most = hn::Set(bits, format.most());
  auto element = hn::Iota(bits, first);  // inside the loop it would go through memory
  const auto step = hn::Set(bits, static_cast<uint32_t>(lanes));
  const auto key = hn::Set(bits, number * 0x85ebca77U + k * 0xc2b2ae3dU);
  for (int64_t i = 0; i < kStateBlock; i += lanes) {
    // float8_draw()
    auto draw = hn::Xor(hn::Mul(element, hn::Set(bits, 0x9e3779b1U)), key);
    element = hn::Add(element, step);
    draw = hn::Mul(hn::Xor(draw, hn::ShiftRight<16>(draw)), hn::Set(bits, 0x7feb352dU));
    draw = hn::Mul(hn::Xor(draw, hn::ShiftRight<15>(draw)), hn::Set(bits, 0x846ca68bU));
    draw = hn::Xor(draw, hn::ShiftRight<16>(draw));
    const auto value = hn::LoadU(d, values + i);
    const auto x = hn::Mul(hn::Abs(value), inverse);
    const auto rounded =
        hn::ShiftRight<20>(hn::Add(hn::BitCast(bits, x), hn::ShiftRight<12>(draw)));
    const auto large = hn::Min(hn::Sub(rounded, hn::Set(bits, format.bias() >> 20)), most);
    auto bound = hn::Zero(d);
    if (format.is_signed) {
      const auto share = hn::Or(hn::ShiftRight<9>(draw), hn::Set(bits, 0x3f800000U));
      bound = hn::Mul(hn::Sub(hn::BitCast(d, share), hn::Set(d, 1.0F)), least);
    }
    const auto small = hn::IfThenElseZero(hn::RebindMask(bits, hn::Gt(x, bound)), hn::Set(bits, 1));
    auto code = hn::IfThenElse(hn::RebindMask(bits, hn::Ge(x, least)), large, small);
    if (format.is_signed) {
      code = hn::Or(code, hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(bits, value))));
    }
    hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(integers, code)), bytes, codes + i);
  }
}

// Elements of whole blocks, which begin at `begin`: out of 8 bits, the rule, and back.
template <class Step, class T, class Rule>
void update_blocks(const Rule& rule, const ParameterUpdate<T>& update,
                   const GradientTransform& transform, int64_t begin, int64_t end) {
  constexpr auto kStates = static_cast<int>(Step::kStates.size());
  alignas(64) float values[kStates][kStateBlock];
  for (int64_t at = begin; at < end; at += kStateBlock) {
    ParameterUpdate<T> block = update;
    block.param += at;
    if (block.grad != nullptr) block.grad += at;
    if (block.wide_grad != nullptr) block.wide_grad += at;
    if (block.master != nullptr) block.master += at;
    for (size_t k = 0; k < kStates; ++k) {
      decode({Step::kSigned[k]}, update.codes[k] + at, update.scales[k][at / kStateBlock],
             values[k]);
      block.state[k] = values[k];
    }
    update_with<kStates, false>(rule, block, transform, 0, std::min(kStateBlock, end - at));
    for (size_t k = 0; k < kStates; ++k) {
      encode({Step::kSigned[k]}, values[k], static_cast<uint32_t>(at), update.number,
             static_cast<uint32_t>(k), update.codes[k] + at, &update.scales[k][at / kStateBlock]);
    }
  }
}

template <class T>
void update_piece(const ParameterUpdate<T>& update, const GradientTransform& transform,
                  int64_t begin, int64_t end) {
  std::visit(
      [&](const auto& step) HWY_ATTR {
        constexpr auto kStates = static_cast<int>(std::decay_t<decltype(step)>::kStates.size());
        const auto rule = rule_of<Wider<T>>(step);
        if constexpr (kStates > 0 && sizeof(Wider<T>) == sizeof(float)) {
          if (update.codes[0] != nullptr) {
            using Step = std::decay_t<decltype(step)>;
            return update_blocks<Step>(rule, update, transform, begin, end);
          }
          if (update.rounded_state[0] != nullptr) {
            return update_with<kStates, true>(rule, update, transform, begin, end);
          }
        }
        update_with<kStates, false>(rule, update, transform, begin, end);
      },
      update.step);
}

template <class T>
void average_piece(double decay, const AverageUpdate<T>& update, int64_t begin, int64_t end) {
  const Tag<T> d;
  const auto keep = hn::Set(d, static_cast<Wider<T>>(decay));
  const auto take = hn::Set(d, static_cast<Wider<T>>(1 - decay));
  Wider<T>* const average = update.average + begin;
  const T* const value = update.value + begin;
  each_vector(d, end - begin, [&](auto io, int64_t i) HWY_ATTR {
    const auto taken = hn::Mul(take, io.load(d, value + i));
    io.store(d, hn::MulAdd(keep, io.load(d, average + i), taken), average + i);
  });
}

template <class T>
constexpr OptimizerPieces<T> kPieces = {update_piece<T>, average_piece<T>};

const PerType<OptimizerPieces>* optimizer_pieces() {
  static constexpr PerType<OptimizerPieces> pieces = {kPieces<float>, kPieces<double>,
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
HWY_EXPORT(optimizer_pieces);
}  // namespace

namespace kernels {

template <class T>
void optimizer_step(Cpu, std::span<const ParameterUpdate<T>> updates,
                    const GradientTransform& transform) {
  const ProfileScope profile(Part::kOptimizer);
  const auto [scale, finite] = gradient_scale(transform);
  if (!finite) return;
  const GradientTransform clipped{scale, transform.limit};
  const auto update_piece = HWY_DYNAMIC_DISPATCH(optimizer_pieces)()->of<T>().update;
  // A block is the work of one thread.
  struct Padded {
    int64_t n;
  };
  static_assert(TensorList::kChunk % kStateBlock == 0);
  std::vector<Padded> sizes;
  for (const ParameterUpdate<T>& update : updates) {
    const bool in_blocks = update.codes[0] != nullptr;
    sizes.push_back({in_blocks ? state_blocks(update.n) * kStateBlock : update.n});
  }
  TensorList(sizes).for_each_piece([&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    update_piece(updates[tensor], clipped, begin, std::min(end, updates[tensor].n));
  });
}

template <class T>
void moving_average(Cpu, double decay, std::span<const AverageUpdate<T>> updates) {
  const auto average_piece = HWY_DYNAMIC_DISPATCH(optimizer_pieces)()->of<T>().average;
  TensorList(updates).for_each_piece([&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    average_piece(decay, updates[tensor], begin, end);
  });
}

template void optimizer_step(Cpu, std::span<const ParameterUpdate<float>>,
                             const GradientTransform&);
template void optimizer_step(Cpu, std::span<const ParameterUpdate<double>>,
                             const GradientTransform&);
template void optimizer_step(Cpu, std::span<const ParameterUpdate<BFloat16>>,
                             const GradientTransform&);
template void moving_average(Cpu, double, std::span<const AverageUpdate<float>>);
template void moving_average(Cpu, double, std::span<const AverageUpdate<double>>);
template void moving_average(Cpu, double, std::span<const AverageUpdate<BFloat16>>);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
