#include "core/kernels/optimizer.h"
#include "core/kernels/sum_squares.h"
#include "core/kernels/top_logits.h"
#include "tests/bench/rows.h"

namespace tapestry::bench {
namespace {

float* data(const Tensor& x) { return x.data<float>(); }

// A step of a search with five beams.
Row top_logits_row(const std::string& name, int64_t n, int64_t vocab) {
  constexpr int64_t kCount = 10;
  return {name, 4.0 * n * vocab, 4.0 * n * vocab, [=] {
            const Tensor logits = values({n, vocab});
            const Tensor top = Tensor::empty({n, 1 + 2 * kCount}, DType::kFloat64);
            return [=] {
              kernels::top_logits<float>(Cpu{}, {n, vocab, kCount}, data(logits), nullptr,
                                         top.data<double>());
            };
          }};
}

// About the parameters of the model, as one tensor.
int64_t parameters(const ModelShape& m) {
  const int64_t layer = 4 * m.hidden * m.hidden + 2 * m.hidden * m.intermediate;
  return m.vocab * m.hidden + m.layers * layer;
}

Row adam_row(const std::string& name, int64_t n) {
  return {name, 15.0 * n, 4.0 * 7 * n, [=] {
            const Tensor p = values({n}), g = values({n}), mean = values({n});
            const Tensor square = Tensor::full({n}, 0.5);
            return [=] {
              const AdamStep step{1e-3, 0.01, 0.9, 0.999, 1e-8, true, 0.5, 0.5};
              const ParameterUpdate<float> update{
                  step, data(p), data(g), {data(mean), data(square)}, n};
              kernels::optimizer_step<float>(Cpu{}, std::span(&update, 1), {});
            };
          }};
}

Row sum_squares_row(const std::string& name, int64_t n) {
  return {name, 2.0 * n, 4.0 * n, [=] {
            const Tensor x = values({n});
            return [=] {
              const ElementSpan<float> span{data(x), n};
              double result = 0;
              kernels::sum_squares<float>(Cpu{}, std::span(&span, 1), &result);
            };
          }};
}

}  // namespace

Table row_wise_rows(const ModelShape& m) {
  const auto name = [&](const std::string& kernel) { return kernel + "/" + m.name; };
  return {top_logits_row(name("top_logits/forward"), m.batch * 5, m.vocab),
          adam_row(name("optimizer_step/adam"), parameters(m)),
          sum_squares_row(name("sum_squares/all"), parameters(m))};
}

}  // namespace tapestry::bench
