#include "apps/commands/pages/fit_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "apps/commands/pages/web_page.h"

namespace tapestry {
namespace {

constexpr size_t kCurvePoints = 240;
constexpr size_t kMostRows = 100, kMostColumns = 200;
constexpr double kWidth = 720, kHeight = 420, kMargin = 52;

struct AxisRange {
  double low, high;
  explicit AxisRange(const std::vector<double>& values)
      : low(*std::min_element(values.begin(), values.end())),
        high(*std::max_element(values.begin(), values.end())) {
    if (low == high) low -= 1, high += 1;
  }
  // 0 at the low end, 1 at the high one.
  double share(double value) const { return (value / 2 - low / 2) / (high / 2 - low / 2); }
};

// A plot's coordinates in pixels.
struct Frame {
  AxisRange x, y;
  double left(double value) const { return kMargin + x.share(value) * (kWidth - 2 * kMargin); }
  double top(double value) const {
    return kHeight - kMargin - y.share(value) * (kHeight - 2 * kMargin);
  }
};

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void add_plot(std::string& page, const RegressionModel& model, const std::vector<double>& x,
              const std::vector<double>& answers) {
  const auto out = std::back_inserter(page);
  const AxisRange range(joined(model.points.x, x));
  std::vector<double> places(kCurvePoints);
  for (size_t i = 0; i < kCurvePoints; ++i) {
    const double share = static_cast<double>(i) / (kCurvePoints - 1);
    places[i] = range.low * (1 - share) + range.high * share;
  }
  const std::vector<double> curve = model.predict(places);
  const Frame frame{range, AxisRange(joined(joined(model.points.y, curve), answers))};
  fmt::format_to(out, "<svg style=\"width: 100%; max-width: {0}px\" viewBox=\"0 0 {0} {1}\">\n",
                 kWidth, kHeight);
  fmt::format_to(out,
                 "<rect x=\"{0}\" y=\"{0}\" width=\"{1}\" height=\"{2}\" fill=\"none\" "
                 "stroke=\"var(--line)\"/>\n",
                 kMargin, kWidth - 2 * kMargin, kHeight - 2 * kMargin);
  for (const double value : {frame.x.low, frame.x.high}) {
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>\n",
                   frame.left(value), kHeight - kMargin + 18, value);
  }
  for (const double value : {frame.y.low, frame.y.high}) {
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
                   kMargin - 6, frame.top(value) + 4, value);
  }
  for (size_t i = 0; i < model.points.x.size(); ++i) {
    fmt::format_to(out, "<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3\" fill=\"var(--soft)\"/>\n",
                   frame.left(model.points.x[i]), frame.top(model.points.y[i]));
  }
  page += "<polyline fill=\"none\" stroke=\"var(--c0)\" stroke-width=\"2\" points=\"";
  for (size_t i = 0; i < kCurvePoints; ++i) {
    fmt::format_to(out, "{:.2f},{:.2f} ", frame.left(places[i]), frame.top(curve[i]));
  }
  page += "\"/>\n";
  for (size_t i = 0; i < x.size(); ++i) {
    fmt::format_to(out,
                   "<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"4\" fill=\"none\" "
                   "stroke=\"var(--c1)\"><title>{:.6g}: {:.6g}</title></circle>\n",
                   frame.left(x[i]), frame.top(answers[i]), x[i], answers[i]);
  }
  page += "</svg>\n";
}

void add_weights(std::string& page, const RegressionModel& model, const std::vector<double>& x,
                 const std::vector<double>& weights) {
  constexpr double kRow = 12, kLabel = 80;
  const size_t points = model.points.x.size(), rows = std::min(kMostRows, x.size());
  const size_t columns = std::min(kMostColumns, points);
  std::vector<size_t> order(points);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return model.points.x[a] < model.points.x[b]; });
  const double column = (kWidth - kLabel) / static_cast<double>(columns);
  const auto out = std::back_inserter(page);
  fmt::format_to(out, "<svg style=\"width: 100%; max-width: {0}px\" viewBox=\"0 0 {0} {1}\">\n",
                 kWidth, kRow * static_cast<double>(rows) + 1);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> shares(columns, 0);
    for (size_t i = 0; i < points; ++i) {
      shares[i * columns / points] += weights[row * points + order[i]];
    }
    const double most = std::max(1e-12, *std::max_element(shares.begin(), shares.end()));
    const double top = kRow * static_cast<double>(row);
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
                   kLabel - 6, top + kRow - 2, x[row]);
    for (size_t i = 0; i < columns; ++i) {
      if (shares[i] < most / 1000) continue;
      fmt::format_to(out,
                     "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" "
                     "fill=\"var(--c0)\" fill-opacity=\"{:.3f}\"><title>{:.4g}</title></rect>\n",
                     kLabel + column * static_cast<double>(i), top, column, kRow - 1,
                     shares[i] / most, shares[i]);
    }
  }
  page += "</svg>\n";
}

}  // namespace

std::string fit_page(const RegressionModel& model, const std::vector<double>& x) {
  Tensor weights;
  const std::vector<double> answers = model.predict(x, &weights);
  std::string page;
  fmt::format_to(std::back_inserter(page),
                 "<h1 style=\"margin-top: 22px\">Attention pooling</h1>\n<p>Kernel {}, width "
                 "{:.4g}, {} points. The line is "
                 "what the model says; circles are its answers.</p>\n",
                 name_of(model.pooling.kernel), model.width(), model.points.size());
  add_plot(page, model, x, answers);
  if (!x.empty()) {
    page +=
        "<h2>Weights</h2>\n<p>Each row is an x, each column a point, in the order of its place. "
        "The stronger the colour, the more, by the most of the row.</p>\n";
    add_weights(page, model, x, weights.to_vector<double>());
  }
  return html_around("Regression", page);
}

}  // namespace tapestry
