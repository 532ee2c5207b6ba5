#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/optimizer_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/cpu/tensor_list.h"
#include "core/kernels/optimizer.h"
#include "core/kernels/optimizer_functors.h"
#include "core/profile.h"

#ifndef TAPESTRY_OPTIMIZER_ONCE
#define TAPESTRY_OPTIMIZER_ONCE
namespace tapestry::kernels {

template <class T>
struct OptimizerPieces {
  // Elements [begin, end) of a tensor.
  void (*update)(const ParameterUpdate<T>&, const GradientTransform&, int64_t begin, int64_t end);
  void (*average)(double decay, const AverageUpdate<T>&, int64_t begin, int64_t end);
};

}  // namespace tapestry::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

template <size_t kStates, class T, class Rule>
HWY_INLINE void update_lanes(const Rule& rule, T scale, T limit, T* param, const T* grad,
                             const std::array<T*, kStates>& state) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  V p = hn::LoadU(d, param);
  V g = hn::Mul(hn::Set(d, scale), hn::LoadU(d, grad));
  g = hn::Min(hn::Max(g, hn::Set(d, -limit)), hn::Set(d, limit));
  V s[kStates + 1];
  for (size_t k = 0; k < kStates; ++k) s[k] = hn::LoadU(d, state[k]);
  apply(d, rule, p, g, s);
  hn::StoreU(p, d, param);
  for (size_t k = 0; k < kStates; ++k) hn::StoreU(s[k], d, state[k]);
}

template <size_t kStates, class T>
std::array<T*, kStates> advanced(const std::array<T*, kMostOptimizerStates>& state, int64_t by) {
  std::array<T*, kStates> result;
  for (size_t k = 0; k < kStates; ++k) result[k] = state[k] + by;
  return result;
}

// The last elements go through full vectors of padded copies: an element's result must not depend
// on where a piece ends.
template <size_t kStates, class T, class Rule>
void update_tail(const Rule& rule, T scale, T limit, T* param, const T* grad,
                 const std::array<T*, kStates>& state, size_t count) {
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T p[kLanes] = {}, g[kLanes] = {}, s[kStates + 1][kLanes] = {};
  std::array<T*, kStates> padded;
  std::copy_n(param, count, p);
  std::copy_n(grad, count, g);
  for (size_t k = 0; k < kStates; ++k) {
    std::copy_n(state[k], count, s[k]);
    padded[k] = s[k];
  }
  update_lanes<kStates>(rule, scale, limit, p, g, padded);
  std::copy_n(p, count, param);
  for (size_t k = 0; k < kStates; ++k) std::copy_n(s[k], count, state[k]);
}

template <size_t kStates, class T, class Rule>
void update_with(const Rule& rule, const ParameterUpdate<T>& update,
                 const GradientTransform& transform, int64_t begin, int64_t end) {
  const T scale = static_cast<T>(transform.scale);
  const T limit = static_cast<T>(transform.limit);
  const int64_t lanes = hn::Lanes(hn::ScalableTag<T>());
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    update_lanes<kStates>(rule, scale, limit, update.param + i, update.grad + i,
                          advanced<kStates>(update.state, i));
  }
  if (i < end) {
    update_tail<kStates>(rule, scale, limit, update.param + i, update.grad + i,
                         advanced<kStates>(update.state, i), end - i);
  }
}

template <class T>
void update_piece(const ParameterUpdate<T>& update, const GradientTransform& transform,
                  int64_t begin, int64_t end) {
  std::visit(
      [&](const auto& step) HWY_ATTR {
        constexpr size_t kStates = std::decay_t<decltype(step)>::kStates.size();
        update_with<kStates>(rule_of<T>(step), update, transform, begin, end);
      },
      update.step);
}

template <class T>
void average_piece(double decay, const AverageUpdate<T>& update, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto keep = hn::Set(d, static_cast<T>(decay));
  const auto take = hn::Set(d, static_cast<T>(1 - decay));
  const auto average_lanes = [&](T* average, const T* value) HWY_ATTR {
    hn::StoreU(hn::MulAdd(keep, hn::LoadU(d, average), hn::Mul(take, hn::LoadU(d, value))), d,
               average);
  };
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) average_lanes(update.average + i, update.value + i);
  if (i == end) return;
  T average[hn::MaxLanes(d)] = {}, value[hn::MaxLanes(d)] = {};
  std::copy(update.average + i, update.average + end, average);
  std::copy(update.value + i, update.value + end, value);
  average_lanes(average, value);
  std::copy_n(average, end - i, update.average + i);
}

template <class T>
constexpr OptimizerPieces<T> kPieces = {update_piece<T>, average_piece<T>};

const PerType<OptimizerPieces>* optimizer_pieces() {
  static constexpr PerType<OptimizerPieces> pieces = {kPieces<float>, kPieces<double>};
  return &pieces;
}

}  // namespace HWY_NAMESPACE
}  // namespace tapestry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry::kernels {
namespace {
HWY_EXPORT(optimizer_pieces);
}  // namespace

template <class T>
void optimizer_step(Cpu, std::span<const ParameterUpdate<T>> updates,
                    const GradientTransform& transform) {
  const ProfileScope profile(Part::kOptimizer);
  const auto [scale, finite] = gradient_scale(transform);
  if (!finite) return;
  const GradientTransform clipped{scale, transform.limit};
  const auto update_piece = HWY_DYNAMIC_DISPATCH(optimizer_pieces)()->of<T>().update;
  TensorList(updates).for_each_piece([&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    update_piece(updates[tensor], clipped, begin, end);
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
template void moving_average(Cpu, double, std::span<const AverageUpdate<float>>);
template void moving_average(Cpu, double, std::span<const AverageUpdate<double>>);

}  // namespace tapestry::kernels
#endif
