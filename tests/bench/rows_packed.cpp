#include "core/kernels/matmul/linear.h"
#include "core/kernels/packed/packed_linear.h"
#include "tests/bench/rows.h"

namespace tapestry::bench {
namespace {

Row plain_row(const std::string& name, const LinearShape& s) {
  return {name, 2.0 * s.rows * s.in * s.out, 4.0 * (s.rows * s.in + s.in * s.out + s.rows * s.out),
          [=] {
            const Tensor x = values({s.rows, s.in}), w = values({s.out, s.in}), b = values({s.out});
            const Tensor y = Tensor::empty({s.rows, s.out});
            return [=] {
              kernels::linear<float>(
                  Cpu{}, s,
                  {x.data<float>(), w.data<float>(), b.data<float>(), nullptr, y.data<float>()});
            };
          }};
}

Row packed_row(const std::string& name, const LinearShape& s, WeightFormat format) {
  const auto weight_bytes = static_cast<double>(PackedMatrix::bytes(format, s.out, s.in));
  return {name, 2.0 * s.rows * s.in * s.out, 4.0 * (s.rows * s.in + s.rows * s.out) + weight_bytes,
          [=] {
            const Tensor x = values({s.rows, s.in}), w = values({s.out, s.in}), b = values({s.out});
            const Tensor y = Tensor::empty({s.rows, s.out});
            const auto packed =
                std::make_shared<const PackedMatrix>(format, w.data<float>(), s.out, s.in);
            return [=] {
              kernels::packed_linear(Cpu{}, {.rows = s.rows,
                                             .x = x.data<float>(),
                                             .weight = *packed,
                                             .bias = b.data<float>(),
                                             .y = y.data<float>()});
            };
          }};
}

}  // namespace

Table packed_rows() {
  struct Matrix {
    const char* name;
    int64_t in, out;
  };
  // Transformer-tiny on Multi30k, a model of size 512, GPT-2.
  constexpr Matrix kMatrices[] = {
      {"tiny_qkv", 128, 384},  {"tiny_out", 128, 128},     {"tiny_up", 128, 256},
      {"tiny_down", 256, 128}, {"tiny_words", 128, 10000}, {"d512_qkv", 512, 1536},
      {"d512_up", 512, 2048},  {"d512_down", 2048, 512},   {"gpt2_qkv", 768, 2304},
      {"gpt2_up", 768, 3072},  {"gpt2_down", 3072, 768},   {"gpt2_words", 768, 50257},
  };
  Table rows;
  for (const Matrix& m : kMatrices) {
    for (const int64_t count : {1, 5, 64, 320}) {
      const LinearShape shape{count, m.in, m.out};
      const std::string at = std::string("/") + m.name + "/" + std::to_string(count);
      rows.push_back(plain_row("few_rows/linear" + at, shape));
      for (const WeightFormat format : kWeightFormats) {
        rows.push_back(packed_row(std::string("few_rows/") + name_of(format) + at, shape, format));
      }
    }
  }
  return rows;
}

}  // namespace tapestry::bench
