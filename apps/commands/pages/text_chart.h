// Curves as text: block characters in a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

struct TextCurve {
  std::string name;          ///< "training"
  std::vector<double> x, y;  ///< equally long; values that are not finite leave a gap
  int colour = 0;            ///< a number of kCurveColours
};

/// SGR codes of colours that show on dark and on light terminals.
inline constexpr const char* kCurveColours[] = {"34", "33", "32", "35", "36", "31"};

struct TextChart {
  std::string title;
  std::vector<TextCurve> curves;
  double first = 0, last = 0;  ///< range of x; equal: the curves' own
};

/// `height` lines of `width` characters: the title with the last values, and the curves with the
/// ends of their range beside them. Without `colours` there are no escape sequences. At least 3
/// lines of 24 characters.
std::vector<std::string> text_chart(const TextChart& chart, size_t width, size_t height,
                                    bool colours);

/// "1.234", "12.3k", "5.6e-05": at most 8 characters.
std::string short_number(double value);

/// Characters of a line on a terminal: escape sequences have none, and each character is one wide.
size_t text_width(std::string_view line);

/// Pads or truncates (with an ellipsis) to `width`; a truncated line ends without colour.
std::string fit_width(const std::string& line, size_t width);

}  // namespace tapestry
