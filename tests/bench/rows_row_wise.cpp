#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/glu.h"
#include "core/kernels/embedding.h"
#include "core/kernels/norm.h"
#include "core/kernels/optimizer.h"
#include "core/kernels/softmax.h"
#include "core/kernels/sum_squares.h"
#include "core/kernels/top_logits.h"
#include "tests/bench/rows.h"

namespace tapestry::bench {
namespace {

constexpr Dropout kDropout{0.1F, {.seed = 1, .step = 2, .stream = 3}};

float* data(const Tensor& x) { return x.data<float>(); }

// Layer norm of residual + dropout(x).
Row norm_forward_row(const std::string& name, int64_t n, int64_t d) {
  return {name, 9.0 * n * d, 4.0 * 4 * n * d, [=] {
            const Tensor x = values({n, d}), residual = values({n, d}), gamma = values({d});
            const Tensor beta = values({d}), sum = values({n, d}), y = values({n, d});
            const Tensor mean = values({n}), rstd = values({n});
            return [=] {
              kernels::norm<float>(Cpu{}, {NormKind::kLayer, n, d},
                                   {data(x), data(residual), kDropout, data(gamma), data(beta),
                                    data(sum), data(y), data(mean), data(rstd)});
            };
          }};
}

Row norm_backward_row(const std::string& name, int64_t n, int64_t d) {
  return {name, 14.0 * n * d, 4.0 * 4 * n * d, [=] {
            const Tensor sum = values({n, d}), dy = values({n, d}), gamma = values({d});
            const Tensor mean = values({n}), rstd = values({n}), dx = values({n, d});
            const Tensor d_residual = values({n, d}), d_gamma = values({d}), d_beta = values({d});
            return [=] {
              kernels::norm_backward<float>(
                  Cpu{}, {NormKind::kLayer, n, d},
                  {data(sum), data(gamma), data(mean), data(rstd), data(dy), nullptr, kDropout,
                   data(dx), Write::kSet, data(d_residual), Write::kSet, data(d_gamma), Write::kSet,
                   data(d_beta), Write::kSet});
            };
          }};
}

Row embedding_forward_row(const std::string& name, const ModelShape& m) {
  return {name, 3.0 * m.rows() * m.hidden, 4.0 * 2 * m.rows() * m.hidden, [=] {
            const EmbeddingShape shape{m.rows(), m.hidden, m.vocab, m.length};
            const Tensor words = ids(m.rows(), m.vocab), table = values({m.vocab, m.hidden});
            const Tensor positions = values({m.length, m.hidden}), y = values({m.rows(), m.hidden});
            return [=] {
              kernels::embedding<float>(Cpu{}, shape, words.data<int32_t>(), data(table),
                                        data(positions), kDropout, data(y));
            };
          }};
}

// Added to a table that already has a gradient, as a tied table has the classifier's.
Row embedding_backward_row(const std::string& name, const ModelShape& m) {
  return {name, 3.0 * m.rows() * m.hidden, 4.0 * 3 * m.rows() * m.hidden, [=] {
            const EmbeddingShape shape{m.rows(), m.hidden, m.vocab, m.length};
            const Tensor words = ids(m.rows(), m.vocab), dy = values({m.rows(), m.hidden});
            const Tensor d_table = values({m.vocab, m.hidden});
            const Tensor d_positions = values({m.length, m.hidden});
            return [=] {
              kernels::embedding_backward<float>(Cpu{}, shape, words.data<int32_t>(), data(dy),
                                                 kDropout, data(d_table), Write::kAdd,
                                                 data(d_positions), m.length, Write::kSet);
            };
          }};
}

Row softmax_forward_row(const std::string& name, int64_t n, int64_t classes) {
  return {name, 4.0 * n * classes, 4.0 * 2 * n * classes, [=] {
            const Tensor x = values({n, classes}), y = Tensor::empty_like(x);
            return [=] { kernels::softmax<float>(Cpu{}, data(x), data(y), n, classes); };
          }};
}

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

Row softmax_backward_row(const std::string& name, int64_t n, int64_t classes) {
  return {name, 4.0 * n * classes, 4.0 * 3 * n * classes, [=] {
            const Tensor y = values({n, classes}), dy = values({n, classes});
            const Tensor dx = Tensor::empty_like(y);
            return [=] {
              kernels::softmax_backward<float>(Cpu{}, data(y), data(dy), data(dx), n, classes,
                                               Write::kSet);
            };
          }};
}

Row cross_entropy_row(const std::string& name, int64_t n, int64_t classes) {
  return {name, 7.0 * n * classes, 4.0 * 2 * n * classes, [=] {
            const Tensor logits = values({n, classes}), dlogits = Tensor::empty_like(logits);
            const Tensor targets = ids(n, classes);
            return [=] {
              CrossEntropySums sums;
              kernels::cross_entropy<float>(Cpu{}, {n, classes, 0.1}, data(logits),
                                            {targets.data<int32_t>()}, 1, data(dlogits), &sums);
            };
          }};
}

Row glu_forward_row(const std::string& name, int64_t n, int64_t f) {
  return {name, 5.0 * n * f, 4.0 * 3 * n * f, [=] {
            const Tensor x = values({n, 2 * f}), y = values({n, f});
            return [=] { kernels::glu<float>(Cpu{}, Activation::kSilu, data(x), data(y), n, f); };
          }};
}

Row glu_backward_row(const std::string& name, int64_t n, int64_t f) {
  return {name, 9.0 * n * f, 4.0 * 5 * n * f, [=] {
            const Tensor x = values({n, 2 * f}), dy = values({n, f}), dx = values({n, 2 * f});
            return [=] {
              kernels::glu_backward<float>(Cpu{}, Activation::kSilu, data(x), data(dy), data(dx), n,
                                           f, Write::kSet);
            };
          }};
}

Row dropout_row(const std::string& name, int64_t n) {
  return {name, 1.0 * n, 4.0 * 2 * n, [=] {
            const Tensor x = values({n}), y = Tensor::empty_like(x);
            return
                [=] { kernels::dropout<float>(Cpu{}, kDropout, data(x), data(y), n, Write::kSet); };
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
  const int64_t n = m.rows(), d = m.hidden;
  return {norm_forward_row(name("norm/forward"), n, d),
          norm_backward_row(name("norm/backward"), n, d),
          embedding_forward_row(name("embedding/forward"), m),
          embedding_backward_row(name("embedding/backward"), m),
          softmax_forward_row(name("softmax/forward"), n, m.vocab),
          softmax_backward_row(name("softmax/backward"), n, m.vocab),
          top_logits_row(name("top_logits/forward"), m.batch * 5, m.vocab),
          cross_entropy_row(name("cross_entropy/both"), n, m.vocab),
          glu_forward_row(name("glu/forward"), n, m.intermediate),
          glu_backward_row(name("glu/backward"), n, m.intermediate),
          dropout_row(name("dropout/forward"), n * d),
          adam_row(name("optimizer_step/adam"), parameters(m)),
          sum_squares_row(name("sum_squares/all"), parameters(m))};
}

}  // namespace tapestry::bench
