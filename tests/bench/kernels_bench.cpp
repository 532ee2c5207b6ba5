// Kernels that `tapestry bench --ops` does not time, compared with the limits of the machine:
// packed products, attention of every length, updates, searches.
//   kernels_bench [--benchmark_filter=REGEX] [--benchmark_min_time=SECONDS] ...
// Counters of a row: operations and bytes per second, and `of_limit`, its share of the limit. The
// limit is the longer of operations / SGEMM peak and bytes / memory bandwidth. Both are measured at
// the start on all threads. Operands that fit in a cache can exceed the limit of memory.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/cpu/blas.h"
#include "core/cpu/parallel.h"
#include "core/gemm_rate.h"
#include "core/read_rate.h"
#include "tests/bench/rows.h"

namespace tapestry::bench {

Tensor values(const Shape& shape) {
  Tensor x = Tensor::empty(shape);
  uint32_t state = 1;  // cheap: these are up to 10^8 numbers, and no statistics
  for (int64_t i = 0; i < x.numel(); ++i) {
    state = state * 1664525U + 1013904223U;
    x.data<float>()[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
  }
  return x;
}

namespace {

struct Limits {
  double operations_per_s, bytes_per_s;
};

void run_row(benchmark::State& state, const Row& row, const Limits& limits) {
  const std::function<void()> run = row.prepare();
  run();  // the first run allocates memory and warms the caches
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double limit_s =
      std::max(row.operations / limits.operations_per_s, row.bytes / limits.bytes_per_s);
  const auto rate = [](double per_run) {
    return benchmark::Counter(per_run, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["operations"] = rate(row.operations);
  state.counters["bytes"] = rate(row.bytes);
  state.counters["of_limit"] = limit_s * double(state.iterations()) / seconds.count();
}

}  // namespace
}  // namespace tapestry::bench

int main(int argc, char** argv) {
  using namespace tapestry;
  using namespace tapestry::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Table table = attention_length_rows();
  for (Row& row : packed_rows()) table.push_back(std::move(row));
  for (const ModelShape& model : kModels) {
    for (Row& row : row_wise_rows(model)) table.push_back(std::move(row));
  }
  std::sort(table.begin(), table.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  const Limits limits{1e9 * gemm_rate({}, DType::kFloat32, Precision::kFull), 1e9 * copy_rate()};
  std::fprintf(stderr, "%s, %d threads: %.0f GFLOP/s, %.1f GB/s\n", blas_description().c_str(),
               num_threads(), 1e-9 * limits.operations_per_s, 1e-9 * limits.bytes_per_s);
  for (const Row& row : table) {
    benchmark::RegisterBenchmark(
        row.name.c_str(), [&row, &limits](benchmark::State& state) { run_row(state, row, limits); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return benchmark::RunSpecifiedBenchmarks() > 0 ? 0 : 1;  // a filter without a row is a mistake
}
