#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/optimizer_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <tuple>

#include "core/kernels/cpu/tensor_list.h"
#include "core/kernels/optimizer.h"
#include "core/kernels/optimizer_functors.h"
#include "core/profile.h"

#ifndef TAPESTRY_OPTIMIZER_ONCE
#define TAPESTRY_OPTIMIZER_ONCE
namespace tapestry::kernels {

// One function per rule: updates elements [begin, end) of a tensor. The tables of every instruction
// set have this type.
template <class T, class Step>
using PieceFunction = void (*)(const ParameterUpdate<T, Step>&, const GradientTransform&,
                               int64_t begin, int64_t end);
template <class T>
using RuleTable = std::tuple<PieceFunction<T, SgdStep>, PieceFunction<T, MomentumStep>,
                             PieceFunction<T, AdagradStep>, PieceFunction<T, RmspropStep>,
                             PieceFunction<T, AdadeltaStep>, PieceFunction<T, AdamStep>>;

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

template <class T, class Rule, size_t kStates>
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

template <class T, size_t kStates>
std::array<T*, kStates> advanced(const std::array<T*, kStates>& state, int64_t by) {
  std::array<T*, kStates> result = state;
  for (T*& pointer : result) pointer += by;
  return result;
}

// The last elements go through full vectors of padded copies: an element's result must not depend
// on where a piece ends.
template <class T, class Rule, size_t kStates>
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
  update_lanes(rule, scale, limit, p, g, padded);
  std::copy_n(p, count, param);
  for (size_t k = 0; k < kStates; ++k) std::copy_n(s[k], count, state[k]);
}

template <class T, class Step>
void update_piece(const ParameterUpdate<T, Step>& update, const GradientTransform& transform,
                  int64_t begin, int64_t end) {
  const auto rule = rule_of<T>(update.step);
  const T scale = static_cast<T>(transform.scale);
  const T limit = static_cast<T>(transform.limit);
  const int64_t lanes = hn::Lanes(hn::ScalableTag<T>());
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    update_lanes(rule, scale, limit, update.param + i, update.grad + i, advanced(update.state, i));
  }
  if (i < end) {
    update_tail(rule, scale, limit, update.param + i, update.grad + i, advanced(update.state, i),
                end - i);
  }
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
RuleTable<T> rule_table() {
  return {update_piece<T, SgdStep>,     update_piece<T, MomentumStep>, update_piece<T, AdagradStep>,
          update_piece<T, RmspropStep>, update_piece<T, AdadeltaStep>, update_piece<T, AdamStep>};
}
RuleTable<float> rule_table_float() { return rule_table<float>(); }
RuleTable<double> rule_table_double() { return rule_table<double>(); }

void average_piece_float(double decay, const AverageUpdate<float>& update, int64_t begin,
                         int64_t end) {
  average_piece(decay, update, begin, end);
}
void average_piece_double(double decay, const AverageUpdate<double>& update, int64_t begin,
                          int64_t end) {
  average_piece(decay, update, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace tapestry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry::kernels {
namespace {

HWY_EXPORT(rule_table_float);
HWY_EXPORT(rule_table_double);
HWY_EXPORT(average_piece_float);
HWY_EXPORT(average_piece_double);

template <class T>
RuleTable<T> best_rule_table() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(rule_table_float)();
  } else {
    return HWY_DYNAMIC_DISPATCH(rule_table_double)();
  }
}

}  // namespace

template <class T, class Step>
void optimizer_step(Cpu, std::span<const ParameterUpdate<T, Step>> updates,
                    const GradientTransform& transform) {
  const ProfileScope profile(Part::kOptimizer);
  const auto [scale, finite] = gradient_scale(transform);
  if (!finite) return;
  const GradientTransform clipped{scale, transform.limit};
  const auto update_piece = std::get<PieceFunction<T, Step>>(best_rule_table<T>());
  TensorList(updates).for_each_piece([&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    update_piece(updates[tensor], clipped, begin, end);
  });
}

template <>
void moving_average(Cpu, double decay, std::span<const AverageUpdate<float>> updates) {
  TensorList(updates).for_each_piece([&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(average_piece_float)(decay, updates[tensor], begin, end);
  });
}

template <>
void moving_average(Cpu, double decay, std::span<const AverageUpdate<double>> updates) {
  TensorList(updates).for_each_piece([&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(average_piece_double)(decay, updates[tensor], begin, end);
  });
}

#define TAPESTRY_INSTANTIATE(Step)                                                  \
  template void optimizer_step(Cpu, std::span<const ParameterUpdate<float, Step>>,  \
                               const GradientTransform&);                           \
  template void optimizer_step(Cpu, std::span<const ParameterUpdate<double, Step>>, \
                               const GradientTransform&);
TAPESTRY_INSTANTIATE(SgdStep)
TAPESTRY_INSTANTIATE(MomentumStep)
TAPESTRY_INSTANTIATE(AdagradStep)
TAPESTRY_INSTANTIATE(RmspropStep)
TAPESTRY_INSTANTIATE(AdadeltaStep)
TAPESTRY_INSTANTIATE(AdamStep)
#undef TAPESTRY_INSTANTIATE

}  // namespace tapestry::kernels
#endif
