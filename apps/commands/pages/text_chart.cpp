#include "apps/commands/pages/text_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

namespace tapestry {
namespace {

// Indexed by the filled quarters: 1 upper left, 2 upper right, 4 lower left, 8 lower right.
constexpr const char* kQuarters[] = {" ", "▘", "▝", "▀", "▖", "▌", "▞", "▛",
                                     "▗", "▚", "▐", "▜", "▄", "▙", "▟", "█"};
constexpr size_t kLabel = 9;  // characters left of the curves

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // 0 at the low end, 1 at the high one; beyond them at the ends.
  double share(double value) const {
    return high > low ? std::clamp((value - low) / (high - low), 0., 1.) : 0.5;
  }
};

// A few values far above all others, as at the beginning of a run, would press the rest to the
// floor, so they are drawn at the top.
Range range_of(const std::vector<TextCurve>& curves) {
  std::vector<double> values;
  for (const TextCurve& curve : curves) {
    std::ranges::copy_if(curve.y, std::back_inserter(values),
                         [](double value) { return std::isfinite(value); });
  }
  Range range;
  for (const double value : values) range.add(value);
  constexpr size_t kMany = 50;
  if (values.size() < kMany) return range;
  const auto most = values.begin() + static_cast<int64_t>(values.size() * 97 / 100);
  std::ranges::nth_element(values, most);
  const double usual = *most;
  if (range.high - range.low > 2 * (usual - range.low)) range.high = usual;
  return range;
}

// A picture of quarters of characters.
class Canvas {
 public:
  Canvas(size_t width, size_t height)
      : width_(width), height_(height), cells_(width * height, 0), colours_(width * height, -1) {}

  // From one point to the next; shares of the width, and of the height from below.
  void line(double x0, double y0, double x1, double y1, int colour) {
    const double across = 2 * static_cast<double>(width_) - 1;
    const double down = 2 * static_cast<double>(height_) - 1;
    const double steps = std::max({1., std::abs(x1 - x0) * across, std::abs(y1 - y0) * down});
    for (double i = 0; i <= steps; ++i) {
      const double share = i / steps;
      const auto x = static_cast<size_t>(std::lround((x0 + (x1 - x0) * share) * across));
      const auto y = static_cast<size_t>(std::lround((1 - y0 - (y1 - y0) * share) * down));
      const size_t cell = y / 2 * width_ + x / 2;
      cells_[cell] |= static_cast<uint8_t>(1u << (x % 2 + 2 * (y % 2)));
      colours_[cell] = colour;
    }
  }
  // A quarter is hard to see.
  void dot(double x, double y, int colour) {
    const auto at = [](double share, size_t count) {
      return static_cast<size_t>(std::lround(share * static_cast<double>(count - 1)));
    };
    const size_t cell = at(1 - y, height_) * width_ + at(x, width_);
    cells_[cell] = 15;
    colours_[cell] = colour;
  }
  std::string row(size_t y, bool colours) const {
    std::string text;
    int now = -1;
    for (size_t x = 0; x < width_; ++x) {
      const size_t cell = y * width_ + x;
      if (colours && cells_[cell] != 0 && colours_[cell] != now) {
        now = colours_[cell];
        text += fmt::format("\033[{}m", kCurveColours[static_cast<size_t>(now)]);
      }
      text += kQuarters[cells_[cell]];
    }
    return now < 0 ? text : text + "\033[0m";
  }

 private:
  size_t width_, height_;
  std::vector<uint8_t> cells_;
  std::vector<int> colours_;
};

double last_of(const std::vector<double>& values) {
  for (auto value = values.rbegin(); value != values.rend(); ++value) {
    if (std::isfinite(*value)) return *value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size >= 1e9 && size < 1e12) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6 && size < 1e9) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4 && size < 1e6) return fmt::format("{:.4g}k", value / 1e3);
  if (size > 0 && (size < 1e-3 || size >= 1e12)) return fmt::format("{:.1e}", value);
  return fmt::format("{:.4g}", value);
}

size_t text_width(std::string_view line) {
  size_t width = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else {
      width += (line[i] & 0xC0) != 0x80;
    }
  }
  return width;
}

std::string fit_width(const std::string& line, size_t width) {
  const size_t whole = text_width(line);
  if (whole <= width) return line + std::string(width - whole, ' ');
  std::string text;
  size_t done = 1;  // the sign at the end: a number without its last digits would be another one
  bool coloured = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033') {
      const size_t end = line.find('m', i);
      if (end == std::string::npos) break;
      text.append(line, i, end - i + 1);
      coloured = true;
      i = end;
      continue;
    }
    if ((line[i] & 0xC0) != 0x80 && done++ == width) break;
    text += line[i];
  }
  return text + (coloured ? "\033[0m…" : "…");
}

std::vector<std::string> text_chart(const TextChart& chart, size_t width, size_t height,
                                    bool colours) {
  const std::vector<TextCurve>& curves = chart.curves;
  width = std::max<size_t>(width, 24);
  height = std::max<size_t>(height, 3);
  std::string head = colours ? "\033[1m" + chart.title + "\033[0m" : chart.title;
  for (const TextCurve& curve : curves) {
    const std::string sign =
        colours ? fmt::format("\033[{}m■\033[0m", kCurveColours[static_cast<size_t>(curve.colour)])
                : "■";
    head += fmt::format("  {} {}{}", sign, curve.name.empty() ? "" : curve.name + ' ',
                        short_number(last_of(curve.y)));
  }
  std::vector<std::string> lines = {fit_width(head, width)};
  const Range tall = range_of(curves);
  Range wide;
  if (chart.first < chart.last) {
    wide.add(chart.first);
    wide.add(chart.last);
  }
  for (const TextCurve& curve : curves) {
    for (const double x : curve.x) {
      if (std::isfinite(x)) wide.add(x);
    }
  }
  const size_t rows = height - 1;
  Canvas canvas(width - kLabel, rows);
  for (const TextCurve& curve : curves) {
    size_t before = curve.x.size(), points = 0;
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (!std::isfinite(curve.y[i]) || !std::isfinite(curve.x[i])) continue;
      const size_t from = before < curve.x.size() ? before : i;
      canvas.line(wide.share(curve.x[from]), tall.share(curve.y[from]), wide.share(curve.x[i]),
                  tall.share(curve.y[i]), curve.colour);
      before = i;
      ++points;
    }
    if (points == 1)
      canvas.dot(wide.share(curve.x[before]), tall.share(curve.y[before]), curve.colour);
  }
  for (size_t row = 0; row < rows; ++row) {
    std::string label;
    if (!tall.empty() && row == 0) label = short_number(tall.high);
    if (!tall.empty() && row + 1 == rows && rows > 1) label = short_number(tall.low);
    lines.push_back(fmt::format("{:>7} ▏", label) + canvas.row(row, colours));
  }
  return lines;
}

}  // namespace tapestry
