#include "autograd/gradcheck_cases.h"

namespace tapestry {
namespace {

// Adds a case of each form of attention: call(f) computes it with f.
auto both_attentions(Cases& cases) {
  return [&cases](const std::string& name, std::vector<Var> inputs, auto call) {
    cases.push_back({"attention " + name, inputs,
                     [=] { return call([](auto&&... x) { return attention(x...); }); }});
    cases.push_back({"attention_reference " + name, inputs, [=] {
                       return call([](auto&&... x) { return attention_reference(x...).out; });
                     }});
  };
}

}  // namespace

void add_attention_cases(Cases& cases, OperandDraws& in) {
  const Var q = in.draw({2, 3, 8}), k = in.draw({2, 5, 8}), v = in.draw({2, 5, 8});
  const Tensor lengths = in.ints({5, 2}, {2});
  const auto both = both_attentions(cases);
  both("cross, lengths", {q, k, v},
       [=](auto f) { return f(q, k, v, AttentionOptions{.heads = 2, .key_lengths = lengths}); });
  both("causal, offset", {q, k, v},
       [=](auto f) { return f(q, k, v, AttentionOptions{.heads = 2, .causal = true}); });
  both("dropout", {q, k, v}, [=](auto f) {
    return f(q, k, v, AttentionOptions{.heads = 2, .causal = true, .dropout = 0.3});
  });
  const Var kg = in.draw({2, 5, 4}), vg = in.draw({2, 5, 4});
  both("grouped heads", {q, kg, vg}, [=](auto f) {
    return f(q, kg, vg, AttentionOptions{.heads = 4, .kv_heads = 2, .causal = true});
  });
  const Var row = in.draw({2, 5, 16});
  const Tensor angles = in.draw_constant({7, 6});
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    cases.push_back(
        {layout == RopeLayout::kHalf ? "rope, halves" : "rope, interleaved", {row}, [=] {
           const RopeOptions options{.heads = 2, .position_offset = 1, .layout = layout};
           return rope(row, angles, options) * row;
         }});
  }
  const Var qkv = in.draw({2, 5, 16}), kv = in.draw({2, 5, 16});
  cases.push_back({"attention packed qkv", {qkv}, [=] {
                     return attention(qkv,
                                      AttentionOptions{.heads = 4, .kv_heads = 2, .causal = true});
                   }});
  cases.push_back({"attention packed kv", {q, kv}, [=] {
                     return attention(q, kv, AttentionOptions{.heads = 2, .key_lengths = lengths});
                   }});
  cases.push_back({"attention, one value three times", {k}, [=] {
                     return attention(k, k, k, AttentionOptions{.heads = 2});
                   }});
  const std::vector<int32_t> of_sequences{4, 1, 5};
  const Sequences sequences = Sequences::of_lengths(of_sequences, lengths.device());
  const Var qs = in.draw({1, 10, 8}), ks = in.draw({1, 10, 8}), vs = in.draw({1, 10, 8});
  both("sequences", {qs, ks, vs}, [=](auto f) {
    return f(qs, ks, vs, AttentionOptions{.heads = 2, .causal = true, .sequences = sequences});
  });
  cases.push_back({"attention of sequences, dropout", {qs, ks, vs}, [=] {
                     return attention(
                         qs, ks, vs,
                         AttentionOptions{.heads = 2, .dropout = 0.3, .sequences = sequences});
                   }});
  const Var wide = in.draw({2, 5, 6}), packed = in.draw({2, 5, 22}), wide_kv = in.draw({2, 5, 14});
  both("values of another size", {q, k, wide},
       [=](auto f) { return f(q, k, wide, AttentionOptions{.heads = 2, .causal = true}); });
  cases.push_back({"attention packed qkv, values of another size", {packed}, [=] {
                     return attention(packed, AttentionOptions{.heads = 2, .value_size = 3});
                   }});
  cases.push_back({"attention packed kv, values of another size", {q, wide_kv}, [=] {
                     return attention(q, wide_kv, AttentionOptions{.heads = 2});
                   }});
}

void add_attention_mask_cases(Cases& cases, OperandDraws& in) {
  const Var q = in.draw({2, 3, 8}), k = in.draw({2, 5, 8}), v = in.draw({2, 5, 8});
  const Var kg = in.draw({2, 5, 4}), vg = in.draw({2, 5, 4});
  const Tensor lengths = in.ints({5, 2}, {2});
  const auto both = both_attentions(cases);
  // The second query of the first sequence sees nothing.
  const Tensor seen = in.ints({1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1,  //
                               0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0},
                              {2, 3, 5});
  both("boolean mask (B, T, S)", {q, k, v},
       [=](auto f) { return f(q, k, v, AttentionOptions{.heads = 2, .mask = seen}); });
  const Tensor added = in.draw({3, 5}).value(), by_head = in.draw({1, 2, 3, 5}).value();
  both("additive mask (T, S)", {q, k, v}, [=](auto f) {
    return f(q, k, v, AttentionOptions{.heads = 2, .causal = true, .mask = added});
  });
  both("additive mask (1, H, T, S)", {q, k, v},
       [=](auto f) { return f(q, k, v, AttentionOptions{.heads = 2, .mask = by_head}); });
  both("window", {q, k, v},
       [=](auto f) { return f(q, k, v, AttentionOptions{.heads = 2, .window = 2}); });
  both("softcap", {q, k, v}, [=](auto f) {
    return f(q, k, v, AttentionOptions{.heads = 2, .causal = true, .scale = 1.5, .softcap = 0.8});
  });
  const Tensor prefixes = in.ints({4, 0}, {2});
  both("prefix", {k, v}, [=](auto f) {
    return f(k, k, v, AttentionOptions{.heads = 2, .causal = true, .prefix_lengths = prefixes});
  });
  const Var by_head_bias = in.draw({4, 7});
  const Var relative = in.draw({2, 5});  // distances beyond 2 share a number
  both("relative bias", {q, k, v, relative},
       [=](auto f) { return f(q, k, v, AttentionOptions{.heads = 2, .relative_bias = relative}); });
  both("relative bias, grouped, softcap, all masks", {q, kg, vg, by_head_bias}, [=](auto f) {
    return f(q, kg, vg,
             AttentionOptions{.heads = 4,
                              .kv_heads = 2,
                              .causal = true,
                              .key_lengths = lengths,
                              .dropout = 0.3,
                              .softcap = 1.5,
                              .window = 4,
                              .prefix_lengths = prefixes,
                              .mask = seen,
                              .relative_bias = by_head_bias});
  });
}

}  // namespace tapestry
