#include "data/points.h"

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "data/encode_corpus.h"
#include "data/text.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

bool parse_point(const std::string& line, double& x, double& y) {
  const size_t comma = line.find(',');
  return comma != std::string::npos && parse_number(line.substr(0, comma), x) &&
         parse_number(line.substr(comma + 1), y);
}

// A line with a comma and no number: a line that is half a point is no header.
bool is_header(const std::string& line) {
  const size_t comma = line.find(',');
  double number = 0;
  return comma != std::string::npos && line.find(',', comma + 1) == std::string::npos &&
         !parse_number(line.substr(0, comma), number) &&
         !parse_number(line.substr(comma + 1), number);
}

void append_number(std::string& text, double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text.append(digits, end);
}

void read_points(const CorpusSpec& spec, Points& points) {
  if (spec.kind() != CorpusSpec::Kind::kPoints) {
    fail(ErrorKind::kConfig, "[data] regression needs a csv, got ", spec.str(), '.');
  }
  LineReader reader(spec.csv);
  int64_t read = 0;
  for (std::string line; (spec.limit == 0 || read < spec.limit) && reader.next(line);) {
    double x = 0, y = 0;
    if (is_blank(line) || (reader.line_number() == 1 && is_header(line))) continue;
    if (!parse_point(line, x, y)) {
      fail(ErrorKind::kData, "[data] ", reader.place(),
           " must be two numbers with a comma between them, got '", line, "'.");
    }
    points.x.push_back(x);
    points.y.push_back(y);
    ++read;
  }
  if (read == 0) fail(ErrorKind::kData, "[data] ", spec.csv, " has no point.");
}

}  // namespace

bool parse_number(const std::string& text, double& value) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return false;
  const size_t end = text.find_last_not_of(" \t") + 1;
  const auto [at, error] = std::from_chars(text.data() + begin, text.data() + end, value);
  return error == std::errc() && at == text.data() + end && std::isfinite(value);
}

std::string Points::csv() const {
  std::string text = "x,y\n";
  for (size_t i = 0; i < x.size(); ++i) {
    append_number(text, x[i]);
    text += ',';
    append_number(text, y[i]);
    text += '\n';
  }
  return text;
}

Points load_points(const std::vector<CorpusSpec>& specs) {
  check_not_empty(specs);
  Points points;
  for (const CorpusSpec& spec : specs) read_points(spec, points);
  return points;
}

}  // namespace tapestry
