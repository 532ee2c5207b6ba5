#include "core/kernels/packed/packed_top_logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "core/cpu/parallel.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/unary.h"
#include "core/kernels/packed/packed_tile.h"
#include "core/kernels/top_logits.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

// Rows whose logits are there at once. On Zen 4 (1 MB of L2) K 128 and V 10000 take 1.9 ms for 64
// rows and 9.5 ms for 320, while all logits at once take 2.8 and 12.2 ms. Larger vocabularies do
// not fit, and then it is better to read the weights less often.
constexpr int64_t kFewRows = 14, kManyRows = 56;
constexpr int64_t kLogitBytes = int64_t{640} << 10;
// With more candidates all logits are computed.
constexpr int64_t kMostCandidates = 64;

// run(rows of a block, the block with room for its logits) for all rows.
template <class F>
void for_each_block(const PackedLinear& logits, F run) {
  const int64_t vocab = logits.weight.rows();
  const bool fit = kFewRows * vocab * static_cast<int64_t>(sizeof(float)) <= kLogitBytes;
  const Cut blocks{logits.rows, fit ? kFewRows : kManyRows};
  const auto run_block = [&](int64_t block) {
    const Range rows = blocks[block];
    Scratch<float> z(rows.size() * vocab);
    PackedLinear part = logits;
    part.rows = rows.size(), part.x += rows.begin * logits.weight.cols(), part.y = z.data();
    run(rows, part);
  };
  // Few blocks share their work among the threads.
  if (blocks.count() >= 2 * num_threads()) {
    parallel_for(blocks.count(), run_block);
  } else {
    for (int64_t block = 0; block < blocks.count(); ++block) run_block(block);
  }
}

void ban(const int32_t* banned, int64_t vocab, float* z) {
  for (int64_t word = 0; 32 * word < vocab; ++word) {
    for (auto bits = static_cast<uint32_t>(banned[word]); bits != 0; bits &= bits - 1) {
      const int64_t token = 32 * word + std::countr_zero(bits);
      if (token < vocab) z[token] = std::numeric_limits<float>::lowest();
    }
  }
}

// n logits of a search, of which the softcap is taken if there is one: the operations of softcap().
void cap(const PackedLinear& logits, float* z, int64_t n) {
  if (logits.softcap == 0) return;
  affine(Cpu{}, 1 / logits.softcap, z, 0.0, z, n);
  unary(Cpu{}, Unary::kTanh, z, z, n);
  affine(Cpu{}, logits.softcap, z, 0.0, z, n);
}

void capped_linear(const PackedLinear& logits) {
  packed_linear(Cpu{}, logits);
  cap(logits, logits.y, logits.rows * logits.weight.rows());
}

// The largest logit of one row, from all of them.
int32_t largest_of_all(const PackedLinear& row, const int32_t* banned) {
  capped_linear(row);
  double top[3];
  top_logits(Cpu{}, {.rows = 1, .vocab = row.weight.rows()}, row.y, banned, top);
  return std::isfinite(top[0]) ? static_cast<int32_t>(top[1]) : kNotFinite;
}

// Writes the logits of the panels that have candidates over the rounded ones.
int32_t largest_of(const PackedLinear& row, const std::vector<int32_t>& candidates) {
  int64_t done = -1;
  for (const int32_t token : candidates) {
    const int64_t panel = token / PackedMatrix::kPanel;
    if (panel == std::exchange(done, panel)) continue;
    PackedTile tile{.weight = row.weight, .panels = {panel, panel + 1}};
    tile.rows = 1, tile.x = row.x, tile.bias = row.bias, tile.y = row.y;
    packed_tile(row.weight.format())(tile);
  }
  // Logits that differ may be equal behind the softcap: then the first one counts.
  for (const int32_t token : candidates) cap(row, row.y + token, 1);
  return *std::ranges::max_element(candidates, {}, [&](int32_t token) { return row.y[token]; });
}

}  // namespace

void packed_top_logits(Cpu, const PackedLinear& logits, int64_t count, const int32_t* banned,
                       double* top) {
  for_each_block(logits, [&](Range rows, const PackedLinear& part) {
    capped_linear(part);
    top_logits(Cpu{}, {.rows = part.rows, .vocab = part.weight.rows(), .count = count}, part.y,
               banned, top + rows.begin * (1 + 2 * count));
  });
}

void packed_largest(Cpu, const PackedLinear& logits, const LogitScreen& screen,
                    const int32_t* banned, int32_t* largest) {
  const int64_t vocab = logits.weight.rows(), cols = logits.weight.cols();
  const int64_t most = std::min<int64_t>(vocab, kMostCandidates);
  for_each_block(logits, [&](Range rows, const PackedLinear& part) {
    packed_linear(Cpu{}, {.rows = part.rows,
                          .x = part.x,
                          .weight = screen.rounded(),
                          .bias = part.bias,
                          .y = part.y});
    parallel_for(part.rows, [&](int64_t r) {
      PackedLinear row = part;
      row.rows = 1, row.x += r * cols, row.y += r * vocab;
      if (banned != nullptr) ban(banned, vocab, row.y);
      const std::vector<int32_t> candidates =
          screen.candidates(row.x, row.y, {.most = most, .softcap = logits.softcap});
      int32_t& found = largest[rows.begin + r];
      if (candidates.empty()) {
        found = largest_of_all(row, banned);
      } else {
        found = candidates.size() == 1 ? candidates[0] : largest_of(row, candidates);
      }
    });
  });
}

}  // namespace tapestry::kernels
