#include "core/kernels/packed/logit_screen.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/kernels/packed/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/packed/logit_screen_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_KERNELS_LOGIT_SCREEN_ONCE_
#define TAPESTRY_KERNELS_LOGIT_SCREEN_ONCE_
namespace tapestry::kernels {
namespace {

// Logits that rounding has moved: logit i is within z[i] +- (norms[i] * of_norm + errors[i] *
// of_error + |z[i]| * of_sum).
struct MovedLogits {
  const float* z;
  const float* norms;
  const float* errors;
  int64_t count;
  float of_norm, of_error, of_sum;
};

struct ScreenPasses {
  // The largest lower end of all; NaN where an upper end is not finite.
  float (*largest_lower)(const MovedLogits& logits);
  // Writes the first `most` whose upper end reaches `least`, returns how many there are.
  int64_t (*reaching)(const MovedLogits& logits, float least, int32_t* found, int64_t most);
};

}  // namespace
}  // namespace tapestry::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

using kernels::MovedLogits;

template <class Io>
HWY_INLINE auto margin_at(Io io, const MovedLogits& l, int64_t i) {
  const Tag<float> d;
  const auto sum = hn::Mul(hn::Abs(io.load(d, l.z + i)), hn::Set(d, l.of_sum));
  return hn::MulAdd(io.load(d, l.norms + i), hn::Set(d, l.of_norm),
                    hn::MulAdd(io.load(d, l.errors + i), hn::Set(d, l.of_error), sum));
}

float largest_lower(const MovedLogits& l) {
  const Tag<float> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto limit = hn::Set(d, std::numeric_limits<float>::max());
  auto most = lowest;
  auto all_finite = hn::Eq(lowest, lowest);
  each_vector(d, l.count, [&](auto io, int64_t i) HWY_ATTR {
    const auto z = io.load(d, l.z + i), margin = margin_at(io, l, i);
    all_finite = hn::And(all_finite, hn::Le(hn::Add(z, margin), limit));
    most = hn::Max(most, io.or_else(d, hn::Sub(z, margin), lowest));
  });
  return hn::AllTrue(d, all_finite) ? max_lanes(d, most) : std::numeric_limits<float>::quiet_NaN();
}

int64_t reaching(const MovedLogits& l, float least, int32_t* found, int64_t most) {
  const Tag<float> d;
  int64_t count = 0;
  HWY_ALIGN float upper[hn::MaxLanes(d)];
  const auto take = [&](auto io, int64_t i, int64_t lanes) HWY_ATTR {
    const auto ends = hn::Add(io.load(d, l.z + i), margin_at(io, l, i));
    if (hn::AllFalse(d, hn::Ge(ends, hn::Set(d, least)))) return;
    hn::Store(ends, d, upper);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (!(upper[lane] >= least)) continue;
      if (count < most) found[count] = static_cast<int32_t>(i + lane);
      ++count;
    }
  };
  const int64_t lanes = lanes_of<float>();
  int64_t i = 0;
  for (; i + lanes <= l.count; i += lanes) take(Whole{}, i, lanes);
  if (i < l.count) take(Part{l.count - i}, i, l.count - i);
  return count;
}

const kernels::ScreenPasses* screen_passes() {
  static constexpr kernels::ScreenPasses passes = {largest_lower, reaching};
  return &passes;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(screen_passes);

// Raises norms computed in float64, and sums of bounds, above what their rounding may have lost.
constexpr double kUp = 1 + 0x1p-16;
constexpr double kHalfUlp = 0x1p-24;

struct RoundingNorms {
  double norm = 0, rounded = 0, error = 0;
};
RoundingNorms norms_of(const float* exact, const float* rounded, int64_t n) {
  RoundingNorms sums;
  for (int64_t k = 0; k < n; ++k) {
    const double e = exact[k], r = rounded[k];
    sums.norm += e * e, sums.rounded += r * r, sums.error += (e - r) * (e - r);
  }
  return {kUp * std::sqrt(sums.norm), kUp * std::sqrt(sums.rounded), kUp * std::sqrt(sums.error)};
}

// The lowest logit whose softcap may, rounded, be as large as that of `least`. The margin is far
// above the error of a tanh in float32.
float lowest_equal(float least, double softcap) {
  constexpr double kMargin = 0x1p-20;
  if (softcap == 0) return least;
  const double t = std::min(std::tanh(least / softcap), 1.0) - kMargin;
  if (t <= -1) return -std::numeric_limits<float>::max() / 2;  // above those that are banned
  return static_cast<float>(softcap * std::atanh(t));
}

}  // namespace

LogitScreen::LogitScreen(const PackedMatrix& exact)
    : rounded_(WeightFormat::kInt8, exact), norms_(exact.rows()), errors_(exact.rows()) {
  const int64_t cols = exact.cols(), panels = exact.panels();
  parallel_for(panels, [&](int64_t panel) {
    Scratch<float> row(cols), rounded(cols);
    const int64_t first = panel * PackedMatrix::kPanel;
    for (int64_t r = first; r < std::min(first + PackedMatrix::kPanel, exact.rows()); ++r) {
      exact.read_row(r, row.data());
      rounded_.read_row(r, rounded.data());
      const RoundingNorms norms = norms_of(row.data(), rounded.data(), cols);
      norms_[r] = static_cast<float>(norms.norm), errors_[r] = static_cast<float>(norms.error);
    }
  });
}

LogitScreen::LogitScreen(const LogitScreen& all, std::span<const int32_t> rows)
    : rounded_(all.rounded_, rows), norms_(std::ssize(rows)), errors_(std::ssize(rows)) {
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    const int32_t from = rows[static_cast<size_t>(r)];
    norms_[r] = all.norms_.data()[from], errors_[r] = all.errors_.data()[from];
  }
}

std::vector<int32_t> LogitScreen::candidates(const float* x, const float* z,
                                             const Search& search) const {
  const int64_t cols = rounded_.cols();
  Scratch<uint8_t> q(cols);
  Scratch<float> back(cols);
  const float scale = kernels::quantize_row(x, cols, 0, q.data());
  for (int64_t k = 0; k < cols; ++k) {
    back[k] = scale * static_cast<float>(static_cast<int8_t>(q[k]));
  }
  const RoundingNorms norms = norms_of(x, back.data(), cols);
  // A float32 sum of K products may be off by K half ulps of |x| |w|.
  const double of_sums = static_cast<double>(cols + 1) * kHalfUlp * norms.norm;
  kernels::MovedLogits logits{.z = z,
                              .norms = norms_.data(),
                              .errors = errors_.data(),
                              .count = rounded_.rows(),
                              .of_norm = static_cast<float>(kUp * (norms.error + of_sums)),
                              .of_error = static_cast<float>(kUp * norms.rounded),
                              .of_sum = static_cast<float>(16 * kHalfUlp)};
  const kernels::ScreenPasses& passes = *HWY_DYNAMIC_DISPATCH(screen_passes)();
  const float lower = passes.largest_lower(logits);
  if (!std::isfinite(lower)) return {};
  const float least = lowest_equal(lower, search.softcap);
  std::vector<int32_t> found(static_cast<size_t>(search.most));
  const int64_t count = passes.reaching(logits, least, found.data(), search.most);
  if (count > search.most) return {};
  found.resize(static_cast<size_t>(count));
  return found;
}

}  // namespace tapestry
#endif
