#include <bit>
#include <type_traits>
#include <variant>

#include "core/kernels/cuda/tensor_table.cuh"
#include "core/kernels/optimizer_functors.h"

namespace tapestry {
namespace {

// Packs are as wide as one access to the states. Parameters and gradients in bfloat16 then take
// half an access; neighbouring lanes still read neighbouring memory.
template <class T>
constexpr int kWidth = kPack<Wider<T>>;

template <class T, int N>
__device__ void load(const T* from, Wider<T> (&to)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
  for (int j = 0; j < N; ++j) to[j] = widen(pack.v[j]);
}
template <class T, int N>
__device__ void store(const Wider<T> (&from)[N], T* to) {
  Pack<T, N> pack;
  for (int j = 0; j < N; ++j) pack.v[j] = narrow<T>(from[j]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// One tensor of an update, with the rule built from its step.
template <class T, class Step>
struct RuleEntry {
  static constexpr int kStates = static_cast<int>(Step::kStates.size());
  using Rule = decltype(rule_of<Wider<T>>(std::declval<Step>()));

  RuleEntry() = default;
  explicit RuleEntry(const ParameterUpdate<T>& update)
      : rule(rule_of<Wider<T>>(std::get<Step>(update.step))),
        packed(can_pack<T>(0, update.param, update.grad, update.master, update.wide_grad)),
        param(update.param),
        grad(update.grad),
        wide_grad(update.wide_grad),
        master(update.master),
        n(update.n),
        number(update.number) {
    for (int k = 0; k < kStates; ++k) {
      state[k] = update.state[k], rounded_state[k] = update.rounded_state[k];
      packed = packed && can_pack<Wider<T>>(0, state[k], rounded_state[k]);
    }
  }

  // Elements i to i + N - 1.
  template <int N>
  __device__ void update(int64_t i, Wider<T> scale, Wider<T> limit) const {
    Wider<T> p[N], g[N], s[kStates + 1][N];
    if (master != nullptr) {
      load(master + i, p);
    } else {
      load(param + i, p);
    }
    if (wide_grad != nullptr) {
      load(wide_grad + i, g);
    } else {
      load(grad + i, g);
    }
    with_state([&](auto state_of) {
      for (int k = 0; k < kStates; ++k) load(state_of(k) + i, s[k]);
    });
    for (int j = 0; j < N; ++j) {
      const Wider<T> scaled = scale * g[j];
      Wider<T> one[kStates + 1];
      for (int k = 0; k < kStates; ++k) one[k] = s[k][j];
      const Wider<T> clamped = scaled > limit ? limit : scaled < -limit ? -limit : scaled;
      rule(p[j], clamped, one);
      for (int k = 0; k < kStates; ++k) s[k][j] = is_rounded() ? rounded(one[k], clamped) : one[k];
    }
    if (master != nullptr) store(p, master + i);
    store(p, param + i);
    with_state([&](auto state_of) {
      for (int k = 0; k < kStates; ++k) store(s[k], state_of(k) + i);
    });
  }

  // Of double there are no rounded states.
  static constexpr bool kMayRound = kStates > 0 && sizeof(Wider<T>) == sizeof(float);
  __device__ bool is_rounded() const { return kMayRound && rounded_state[0] != nullptr; }
  // Calls f with what gives the pointer to a state.
  template <class F>
  __device__ void with_state(F f) const {
    if constexpr (kMayRound) {
      if (rounded_state[0] != nullptr) return f([this](int k) { return rounded_state[k]; });
    }
    f([this](int k) { return state[k]; });
  }
  __device__ Wider<T> rounded(Wider<T> value, Wider<T> gradient) const {
    if constexpr (kMayRound) {
      const uint32_t draw = rounding_draw(std::bit_cast<uint32_t>(gradient), number);
      return std::bit_cast<float>(rounded_at_random(std::bit_cast<uint32_t>(value), draw));
    }
    return value;
  }

  Rule rule;
  bool packed;
  T* param;
  const T* grad;
  const Wider<T>* wide_grad;
  Wider<T>* master;
  Wider<T>* state[kStates > 0 ? kStates : 1];
  BFloat16* rounded_state[kStates > 0 ? kStates : 1];
  int64_t n;
  uint32_t number;
};

// A block a chunk of a tensor.
template <class T, class Step>
__global__ void optimizer_kernel(const __grid_constant__ TensorTable<RuleEntry<T, Step>> table,
                                 const GradientTransform transform) {
  const GradientScale scale = gradient_scale(transform);
  if (!scale.finite) return;
  const auto factor = static_cast<Wider<T>>(scale.value);
  const auto limit = static_cast<Wider<T>>(transform.limit);
  const TensorChunk chunk(table);
  const RuleEntry<T, Step>& entry = table.entries[chunk.entry];
  if (entry.packed) {
    chunk.each_pack<kWidth<T>>(
        [&](int64_t i) { entry.template update<kWidth<T>>(i, factor, limit); });
    chunk.each_left<kWidth<T>>([&](int64_t i) { entry.template update<1>(i, factor, limit); });
  } else {
    chunk.each_pack<1>([&](int64_t i) { entry.template update<1>(i, factor, limit); });
  }
}

template <class T, int N>
__device__ void average_pack(const AverageUpdate<T>& entry, int64_t i, Wider<T> keep,
                             Wider<T> take) {
  Wider<T> average[N], value[N];
  load(entry.average + i, average);
  load(entry.value + i, value);
  for (int j = 0; j < N; ++j) average[j] = std::fma(keep, average[j], take * value[j]);
  store(average, entry.average + i);
}

// A block a chunk of a tensor.
template <class T>
__global__ void moving_average_kernel(const __grid_constant__ TensorTable<AverageUpdate<T>> table,
                                      Wider<T> keep, Wider<T> take) {
  const TensorChunk chunk(table);
  const AverageUpdate<T>& entry = table.entries[chunk.entry];
  if (reinterpret_cast<uintptr_t>(entry.average) % 16 == 0 &&
      reinterpret_cast<uintptr_t>(entry.value) % 16 == 0) {
    chunk.each_pack<kWidth<T>>(
        [&](int64_t i) { average_pack<T, kWidth<T>>(entry, i, keep, take); });
    chunk.each_left<kWidth<T>>([&](int64_t i) { average_pack<T, 1>(entry, i, keep, take); });
  } else {
    chunk.each_pack<1>([&](int64_t i) { average_pack<T, 1>(entry, i, keep, take); });
  }
}

}  // namespace

namespace kernels {

template <class T>
void optimizer_step(Cuda, std::span<const ParameterUpdate<T>> updates,
                    const GradientTransform& transform) {
  if (updates.empty()) return;
  std::visit(
      [&](const auto& first) {
        using Entry = RuleEntry<T, std::decay_t<decltype(first)>>;
        for_each_table<Entry>(
            updates, [](const auto& update) { return Entry(update); },
            [&](const TensorTable<Entry>& table) {
              launch({.kernel = "optimizer_step", .grid = static_cast<unsigned>(table.chunks())},
                     optimizer_kernel<T, std::decay_t<decltype(first)>>, table, transform);
            });
      },
      updates.front().step);
}

template <class T>
void moving_average(Cuda, double decay, std::span<const AverageUpdate<T>> updates) {
  using Entry = AverageUpdate<T>;
  for_each_table<Entry>(
      updates, [](const Entry& update) { return update; },
      [&](const TensorTable<Entry>& table) {
        launch({.kernel = "moving_average", .grid = static_cast<unsigned>(table.chunks())},
               moving_average_kernel<T>, table, static_cast<Wider<T>>(decay),
               static_cast<Wider<T>>(1 - decay));
      });
}

#define TAPESTRY_OPTIMIZER(T)                                             \
  template void optimizer_step(Cuda, std::span<const ParameterUpdate<T>>, \
                               const GradientTransform&);                 \
  template void moving_average(Cuda, double, std::span<const AverageUpdate<T>>);
TAPESTRY_OPTIMIZER(float)
TAPESTRY_OPTIMIZER(double)
TAPESTRY_OPTIMIZER(BFloat16)

}  // namespace kernels
}  // namespace tapestry
