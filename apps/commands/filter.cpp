#include "apps/commands/filter.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "core/error.h"
#include "data/text.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

// Lines of standard input. Can tell whether the next line would block.
class InputLines {
 public:
  // Returns false at the end.
  bool next(std::string& line) {
    size_t end;
    while ((end = buffer_.find('\n', begin_)) == std::string::npos && read_more()) {
    }
    if (begin_ == buffer_.size()) return false;
    line = buffer_.substr(begin_, end - begin_);
    begin_ = end == std::string::npos ? buffer_.size() : end + 1;
    return true;
  }
  // True if no line is available, after a short wait.
  bool waits() const {
    constexpr int kMilliseconds = 100;
    if (ended_ || buffer_.find('\n', begin_) != std::string::npos) return false;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, kMilliseconds) == 0;
  }

 private:
  bool read_more() {
    char bytes[1 << 16];
    ssize_t count;
    do {
      count = read(STDIN_FILENO, bytes, sizeof bytes);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      fail(ErrorKind::kData, "[stdin] cannot be read: ", std::strerror(errno), '.');
    }
    if (count == 0) return !(ended_ = true);
    buffer_.erase(0, begin_);
    begin_ = 0;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  std::string buffer_;
  size_t begin_ = 0;
  bool ended_ = false;
};

}  // namespace

void filter_lines(const std::string& who, size_t block_lines,
                  const std::function<void(const std::vector<std::string>&, int64_t)>& answer) {
  std::vector<std::string> block;
  int64_t number = 0;
  const auto flush = [&] {
    if (block.empty()) return;
    answer(block, number - static_cast<int64_t>(block.size()));
    block.clear();
    std::cout.flush();
    if (!std::cout) fail(ErrorKind::kRuntime, '[', who, "] cannot write to standard output.");
  };
  InputLines input;
  for (std::string text; input.next(text);) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (const size_t bad = find_invalid_utf8(text); bad != std::string::npos) {
      flush();
      ++number;
      fail(ErrorKind::kData, '[', who, "] line ", number, " is not UTF-8 at byte ", bad + 1, '.');
    }
    ++number;
    block.push_back(std::move(text));
    if (block.size() == block_lines || input.waits()) flush();
  }
  flush();
}

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) c == '\n' ? line += "\\n" : line += c;
  return line;
}

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path == "-" ? "/dev/stdin" : path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

SearchOptions search_options(SearchOptions options, const SearchArguments& arguments) {
  options.num_beams = arguments.beam_size.value_or(options.num_beams);
  options.length_penalty = arguments.length_penalty.value_or(options.length_penalty);
  if (arguments.length_penalty_type) {
    for (const LengthPenalty type : kLengthPenalties) {
      if (*arguments.length_penalty_type == name_of(type)) options.length_penalty_type = type;
    }
  }
  options.do_sample = arguments.do_sample.value_or(options.do_sample);
  // --do-sample and --beam-size override each other's default from the config.
  if (arguments.do_sample.value_or(false) && !arguments.beam_size) options.num_beams = 1;
  if (arguments.beam_size.value_or(1) > 1 && !arguments.do_sample) options.do_sample = false;
  options.temperature = arguments.temperature.value_or(options.temperature);
  options.top_k = arguments.top_k.value_or(options.top_k);
  options.top_p = arguments.top_p.value_or(options.top_p);
  options.frequency_penalty = arguments.frequency_penalty.value_or(options.frequency_penalty);
  options.presence_penalty = arguments.presence_penalty.value_or(options.presence_penalty);
  options.repetition_penalty = arguments.repetition_penalty.value_or(options.repetition_penalty);
  options.no_repeat_ngram_size =
      arguments.no_repeat_ngram_size.value_or(options.no_repeat_ngram_size);
  options.min_new_tokens = arguments.min_new_tokens.value_or(options.min_new_tokens);
  options.max_new_tokens = arguments.max_new_tokens.value_or(options.max_new_tokens);
  options.seed = arguments.seed.value_or(options.seed);
  options.n_best = arguments.n_best;
  if (options.n_best > options.num_beams) {
    fail(ErrorKind::kConfig, "[search] expected 1 <= --n-best <= --beam-size, got ", options.n_best,
         " and ", options.num_beams, '.');
  }
  options.validate();
  return options;
}

}  // namespace tapestry
