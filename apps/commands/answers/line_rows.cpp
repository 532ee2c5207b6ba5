#include "apps/commands/answers/line_rows.h"

#include "apps/tasks/long_line.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

FramedText row_of_two(const Config& config, const Tokenizer& tokenizer, const std::string& line,
                      int64_t number) {
  const size_t tab = line.find('\t');
  FramedText row;
  if (tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos) {
    row = encoder_input(config, tokenizer, line.substr(0, tab), line.substr(tab + 1), number);
  }
  if (!row.empty()) return row;
  constexpr size_t kShown = 100;
  fail(ErrorKind::kData, place_of_line(number),
       ": expected two texts with a tab between them, got '", line.substr(0, kShown), "'.");
}

}  // namespace

void answer_rows(LineFilter& filter, int64_t block_lines, const Config& config,
                 const Tokenizer& tokenizer, bool two_texts,
                 const std::function<void(const LineRows&)>& answer) {
  filter.run(block_lines, [&](const std::vector<std::string>& lines, int64_t number) {
    LineRows rows{.lines = lines, .number = number};
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t at = number + static_cast<int64_t>(i);
      FramedText row;
      if (!two_texts) {
        row = encoder_input(config, tokenizer, lines[i], at + 1);
      } else if (!is_blank(lines[i])) {
        try {
          filter.takes_record(at, [&] { row = row_of_two(config, tokenizer, lines[i], at + 1); });
        } catch (const Error&) {
          rows.lines = rows.lines.first(i);
          if (i > 0) answer(rows);
          throw;  // the lines before it are good
        }
      }
      if (row.empty()) continue;
      filter.read(row.ids, tokenizer, at);
      rows.texts.push_back(std::move(row));
      rows.places.push_back(i);
    }
    answer(rows);
  });
}

}  // namespace tapestry
