#include "apps/interop/gguf/gguf_keys.h"

#include <algorithm>
#include <array>

namespace tapestry::interop {
namespace {

using Value = std::optional<double>;

const ModelOptions& options(const ModelFacts& facts) { return facts.config.model; }
Value integer(int64_t value) { return static_cast<double>(value); }
Value above_zero(double value) { return value > 0 ? Value(value) : Value(); }

constexpr GgufKey kContext{
    "context_length", "max_position_embeddings", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).max_position_embeddings); }};
constexpr GgufKey kWidth{
    "embedding_length", "hidden_size", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).hidden_size); }};
constexpr GgufKey kLayers{
    "block_count", "num_hidden_layers", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).num_hidden_layers); }};
constexpr GgufKey kInner{
    "feed_forward_length", "intermediate_size", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).intermediate_size); }};
constexpr GgufKey kHeads{
    "attention.head_count", "num_attention_heads", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).num_attention_heads); }};
constexpr GgufKey kGroups{
    "attention.head_count_kv", "num_key_value_heads", GgufKey::kInteger, false,
    [](const ModelFacts& facts) {
      const ModelOptions& o = options(facts);
      return integer(o.num_key_value_heads > 0 ? o.num_key_value_heads : o.num_attention_heads);
    }};
constexpr GgufKey kVocabulary{
    "vocab_size", nullptr, GgufKey::kInteger, false,
    [](const ModelFacts& facts) { return integer(facts.counts.source_vocab); }};
constexpr GgufKey kTheta{"rope.freq_base", "rope_theta", GgufKey::kReal, false,
                         [](const ModelFacts& facts) { return Value(options(facts).rope_theta); }};
// Numbers of a head that are rotated, where it need not be all.
constexpr GgufKey kRotated{
    "rope.dimension_count", nullptr, GgufKey::kInteger, true, [](const ModelFacts& facts) {
      const ModelOptions& o = options(facts);
      return integer(static_cast<int64_t>(static_cast<double>(o.chosen_head_size()) *
                                          o.partial_rotary_factor));
    }};
constexpr GgufKey kWindow{"attention.sliding_window", "sliding_window", GgufKey::kInteger, false,
                          [](const ModelFacts& facts) {
                            const int64_t window = options(facts).attention_window;
                            return window > 0 ? integer(window) : Value();
                          }};
constexpr GgufKey kScoreCap{
    "attn_logit_softcapping", "attn_logit_softcapping", GgufKey::kReal, false,
    [](const ModelFacts& facts) { return above_zero(options(facts).attention_softcap); }};
constexpr GgufKey kLogitCap{
    "final_logit_softcapping", "final_logit_softcapping", GgufKey::kReal, false,
    [](const ModelFacts& facts) { return above_zero(options(facts).logit_softcap); }};
constexpr GgufKey kLogitScale{
    "logit_scale", "logit_scale", GgufKey::kReal, true,
    [](const ModelFacts& facts) { return Value(options(facts).logit_scale); }};

Value norm_eps(const ModelFacts& facts) { return options(facts).norm_eps; }
constexpr GgufKey kLayerNorm{"attention.layer_norm_epsilon", "norm_eps", GgufKey::kReal, true,
                             norm_eps};
constexpr GgufKey kRmsNorm{"attention.layer_norm_rms_epsilon", "norm_eps", GgufKey::kReal, true,
                           norm_eps};

Value head_size(const ModelFacts& facts) {
  return options(facts).head_size > 0 ? integer(options(facts).head_size) : Value();
}

// A table's rows, and more behind them.
template <size_t N, class... More>
constexpr std::array<GgufKey, N + sizeof...(More)> with(const std::array<GgufKey, N>& rows,
                                                        More... more) {
  std::array<GgufKey, N + sizeof...(More)> all{};
  std::ranges::copy(rows, all.begin());
  size_t next = N;
  ((all[next++] = more), ...);
  return all;
}

constexpr std::array<GgufKey, 5> kSizes = {{kContext, kWidth, kLayers, kInner, kHeads}};
constexpr auto kGpt2Rows = with(kSizes, kVocabulary, kLayerNorm);
constexpr GgufKey kKeySize{"attention.key_length", "head_dim", GgufKey::kInteger, false, head_size};
constexpr GgufKey kValueSize{"attention.value_length", nullptr, GgufKey::kInteger, false,
                             head_size};
constexpr auto kLlamaRows = with(
    kSizes, kGroups, kKeySize, kValueSize,
    GgufKey{"rope.dimension_count", nullptr, GgufKey::kInteger, false,
            [](const ModelFacts& facts) { return integer(options(facts).chosen_head_size()); }},
    kVocabulary, kRmsNorm, kTheta);
constexpr auto kGemma2Rows = with(kLlamaRows, kWindow, kScoreCap, kLogitCap);
constexpr auto kGemma3Rows = with(kLlamaRows, kWindow, kLogitCap);
constexpr auto kNeoxRows = with(
    kSizes, kRotated,
    GgufKey{
        "use_parallel_residual", "parallel_residual", GgufKey::kFlag, true,
        [](const ModelFacts& facts) { return integer(options(facts).parallel_residual ? 1 : 0); }},
    kLayerNorm, kVocabulary, kTheta);
constexpr auto kPhi2Rows = with(kSizes, kGroups, kLayerNorm, kRotated, kVocabulary, kTheta);
constexpr auto kPhi3Rows = with(kSizes, kGroups, kRmsNorm, kRotated, kVocabulary, kTheta);
// Their own converter tells the usual size of a head, too.
constexpr auto kCommandRRows =
    with(kSizes, kGroups, kKeySize, kValueSize, kTheta, kLayerNorm, kVocabulary, kLogitScale);
constexpr GgufKey needed(GgufKey row) {
  row.needed = true;
  return row;
}
constexpr auto kCohere2Rows = with(kCommandRRows, needed(kWindow), kRotated);

bool is_one_of(RopeScalingType type, std::initializer_list<RopeScalingType> types) {
  return std::ranges::find(types, type) != types.end();
}

// Their engine multiplies this by yarn's usual factor.
Value attention_factor(const ModelFacts& facts) {
  const ModelOptions& o = options(facts);
  RopeScaling usual = o.rope_scaling;
  if (!usual.has_attention_factor()) return {};
  usual.attention_factor = usual.type == RopeScalingType::kYarn ? 0 : 1;
  const double factor = RopeFrequencies(o.rope_theta, o.rope_scaling).attention_factor() /
                        RopeFrequencies(o.rope_theta, usual).attention_factor();
  return static_cast<float>(factor) == 1 ? Value() : Value(factor);
}
constexpr GgufKey kRopeScalingRows[] = {
    {"rope.scaling.factor", nullptr, GgufKey::kReal, false,
     [](const ModelFacts& facts) {
       const RopeScaling& scaling = options(facts).rope_scaling;
       const bool divides =
           is_one_of(scaling.type, {RopeScalingType::kLinear, RopeScalingType::kYarn});
       return divides ? Value(scaling.factor) : Value();
     }},
    {"rope.scaling.original_context_length", nullptr, GgufKey::kInteger, false,
     [](const ModelFacts& facts) {
       const RopeScaling& scaling = options(facts).rope_scaling;
       return scaling.has_attention_factor() ? integer(scaling.original_max_position_embeddings)
                                             : Value();
     }},
    {"rope.scaling.attn_factor", nullptr, GgufKey::kReal, false, attention_factor},
};

}  // namespace

namespace gguf_keys {

constinit const std::span<const GgufKey> kGpt2 = kGpt2Rows, kLlama = kLlamaRows,
                                         kGemma2 = kGemma2Rows, kGemma3 = kGemma3Rows,
                                         kNeox = kNeoxRows, kPhi2 = kPhi2Rows, kPhi3 = kPhi3Rows,
                                         kCommandR = kCommandRRows, kCohere2 = kCohere2Rows;
constinit const std::span<const GgufKey> kRopeScaling = kRopeScalingRows;

}  // namespace gguf_keys
}  // namespace tapestry::interop
