#include "data/n_best/n_best_file.h"

#include <charconv>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

constexpr std::string_view kBar = "|||", kWrittenBar = "&#124;&#124;&#124;";

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// The first four fields, and the rest with the bar in front of it.
std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  size_t begin = 0;
  while (fields.size() < 4) {
    const size_t bar = std::min(line.find(kBar, begin), line.size());
    fields.push_back(without_spaces(line.substr(begin, bar - begin)));
    if (bar == line.size()) return fields;
    begin = bar + kBar.size();
  }
  fields.push_back(line.substr(begin - kBar.size()));
  return fields;
}

// The words of a third field: names that end in =, and values.
std::vector<std::string_view> words_of(std::string_view features) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; (begin = features.find_first_not_of(' ', begin)) != features.npos;) {
    const size_t end = std::min(features.find(' ', begin), features.size());
    words.push_back(features.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

class NBestReader {
 public:
  NBestReader(const std::string& path, int64_t lines) : reader_(path), lines_(lines) {
    lists_.resize(static_cast<size_t>(lines));
  }

  std::vector<std::vector<NBestEntry>> read() {
    for (std::string line; reader_.next(line);) take(line);
    for (size_t i = 0; i < lists_.size(); ++i) {
      if (!lists_[i].empty()) continue;
      fail(ErrorKind::kData, "[n-best] ", reader_.path(), " has no translation of line ", i + 1,
           " of the source, whose number is ", i, '.');
    }
    return std::move(lists_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kData, "[n-best] ", reader_.place(), ": ", concat(parts...));
  }

  void take(const std::string& line) {
    if (const size_t bad = find_invalid_utf8(line); bad != std::string::npos) {
      refuse("expected UTF-8, byte ", bad + 1, " of the line is none.");
    }
    const std::vector<std::string_view> fields = fields_of(line);
    NBestEntry entry;
    int64_t number = 0;
    if (fields.size() < 4 || !parse_whole(fields[0], number) ||
        !parse_number(std::string(fields[3]), entry.score)) {
      constexpr size_t kShown = 100;
      refuse("expected NUMBER ||| TEXT ||| VALUES ||| SCORE, got '", line.substr(0, kShown), "'.");
    }
    check_number(number);
    entry.text = std::string(fields[1]);
    replace_all(entry.text, kWrittenBar, kBar);
    entry.features = std::string(fields[2]);
    entry.log_probability = log_probability_of(entry.features);
    entry.line = reader_.line_number();
    if (fields.size() > 4) entry.rest = concat(' ', fields[4]);
    lists_[static_cast<size_t>(number)].push_back(std::move(entry));
  }

  static bool parse_whole(std::string_view text, int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }

  void check_number(int64_t number) {
    if (number < 0 || number >= lines_) {
      refuse("expected the number of one of the ", lines_, " lines of the source, from 0, got ",
             number, '.');
    }
    if (number < last_) refuse("expected numbers that rise, got ", number, " after ", last_, '.');
    last_ = number;
  }

  std::optional<double> log_probability_of(const std::string& features) const {
    const std::optional<std::string> text = named_value(features, "F0");
    double value = 0;
    if (text && !parse_number(*text, value)) {
      refuse("expected a number behind F0=, got '", *text, "'.");
    }
    return text ? std::optional(value) : std::nullopt;
  }

  LineReader reader_;
  int64_t lines_, last_ = 0;
  std::vector<std::vector<NBestEntry>> lists_;
};

}  // namespace

std::vector<std::vector<NBestEntry>> read_n_best(const std::string& path, int64_t lines) {
  return NBestReader(path, lines).read();
}

std::optional<std::string> named_value(const std::string& features, const std::string& name) {
  const std::string wanted = name + '=';
  const auto words = words_of(features);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != wanted) continue;
    return i + 1 < words.size() ? std::string(words[i + 1]) : "";
  }
  return std::nullopt;
}

std::string without_value(const std::string& features, const std::string& name) {
  const std::string wanted = name + '=';
  std::string kept;
  bool keeps = true;
  for (const std::string_view word : words_of(features)) {
    if (word.ends_with('=')) keeps = word != wanted;
    if (keeps) kept += concat(kept.empty() ? "" : " ", word);
  }
  return kept;
}

std::string as_n_best_field(std::string text) {
  replace_all(text, kBar, kWrittenBar);
  return text;
}

}  // namespace tapestry
