#include "apps/tasks/long_line.h"

#include <iostream>

#include "core/base/error.h"
#include "data/corpora/empty_text.h"

namespace tapestry {

std::string place_of_line(int64_t number) { return concat("line ", number); }

void cut_long_line(std::vector<int32_t>& ids, int64_t most, const std::string& place, Kept kept) {
  const int64_t tokens = std::ssize(ids);
  if (tokens <= most) return;
  const bool first = kept == Kept::kFirst;
  // A single write, because other threads may write, too.
  std::cerr << concat("warning: ", place, " of ", tokens, " tokens is cut to its ",
                      first ? "first " : "last ", most, ".\n");
  ids.erase(first ? ids.begin() + most : ids.begin(), first ? ids.end() : ids.end() - most);
}

FramedText encoder_input(const Config& config, const Tokenizer& tokenizer, const std::string& text,
                         int64_t line) {
  std::vector<int32_t> tokens = tokenizer.encode(text);
  if (is_empty_text(text, tokens)) return {};
  const TextFrame frame = tokenizer.special().classified();
  cut_long_line(tokens, config.data.corpus.max_length - frame.size(), place_of_line(line));
  return {.ids = in_frame(frame, tokens)};
}

FramedText encoder_input(const Config& config, const Tokenizer& tokenizer, const std::string& text,
                         const std::string& second, int64_t line) {
  std::vector<int32_t> first_ids = tokenizer.encode(text), second_ids = tokenizer.encode(second);
  if (is_empty_text(text, first_ids) || is_empty_text(second, second_ids)) return {};
  const TwoTextFrame frame = tokenizer.special().question();
  const size_t tokens = first_ids.size() + second_ids.size();
  const int64_t most = config.data.corpus.max_length - frame.size();
  if (cut_longest_first(first_ids, second_ids, most)) {
    std::cerr << concat("warning: ", place_of_line(line), " of ", tokens, " tokens is cut to ",
                        first_ids.size(), " and ", second_ids.size(), ".\n");
  }
  return in_frame(frame, first_ids, second_ids);
}

FramedText encoder_input(const Config& config, const Tokenizer& tokenizer,
                         const std::vector<std::string>& texts,
                         const std::vector<std::string>& seconds, size_t at) {
  const auto line = static_cast<int64_t>(at) + 1;
  if (seconds.empty()) return encoder_input(config, tokenizer, texts[at], line);
  return encoder_input(config, tokenizer, texts[at], seconds[at], line);
}

}  // namespace tapestry
