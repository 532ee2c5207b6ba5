#include "apps/commands/answers/line_filter.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "apps/run/outputs/progress_line.h"
#include "apps/tasks/long_line.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "data/corpora/records/record_files.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// Lines of standard input. Knows if reading the next line would block.
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
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (first_ && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    first_ = false;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
  }
  // True if no line is available, after a wait of at most `seconds`.
  bool waits(double seconds) const {
    if (ended_ || buffer_.find('\n', begin_) != std::string::npos) return false;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, static_cast<int>(1000 * std::max(0.0, seconds))) == 0;
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
  bool first_ = true;
};

int64_t count_lines(const std::string& path) {
  LineReader reader(path);
  std::string line;
  while (reader.next(line)) {
  }
  return reader.line_number();
}

// The output, after the check of all files of a command.
std::string checked_output(const std::string& who, const FilterArguments& arguments,
                           NamedFiles outputs, NamedFiles inputs) {
  outputs.emplace_back("--attention", arguments.attention);
  NamedFiles replaced = inputs;
  std::error_code error;
  if (!std::filesystem::equivalent(arguments.output, arguments.input, error)) {
    replaced.emplace_back("--input", arguments.input);
  }
  inputs.emplace_back("--input", arguments.input);
  check_outputs(who.c_str(), outputs, inputs);
  outputs.insert(outputs.begin(), {"--output", arguments.output});
  check_outputs(who.c_str(), outputs, replaced);
  return arguments.output;
}

}  // namespace

// Lines of standard input or of a file.
class LineFilter::Lines {
 public:
  explicit Lines(const std::string& path) {
    if (path != "-") file_.emplace(path);
  }
  bool next(std::string& line) { return file_ ? file_->next(line) : stdin_.next(line); }
  // True if the lines since `begun` should not wait for more: none comes for a while, or they have
  // come slowly for long.
  bool enough(double begun) const {
    constexpr double kPause = 0.1, kLongest = 0.5;  // seconds
    const double left = kLongest - (steady_seconds() - begun);
    return !file_ && stdin_.waits(std::min(kPause, left));
  }

 private:
  std::optional<LineReader> file_;
  InputLines stdin_;
};

LineFilter::LineFilter(std::string who, const FilterArguments& arguments, NamedFiles other_outputs,
                       NamedFiles other_inputs)
    : who_(std::move(who)),
      ill_formed_policy_(arguments.ill_formed),
      output_(checked_output(who_, arguments, std::move(other_outputs), std::move(other_inputs))),
      lines_(std::make_unique<Lines>(arguments.input)) {
  // If somebody types or reads, the answers themselves show the progress.
  const bool typed = arguments.input == "-" && isatty(STDIN_FILENO) == 1;
  const bool read = arguments.output == "-" && isatty(STDOUT_FILENO) == 1;
  shows_progress_ = !typed && !read;
  // A pipe can be read only once.
  if (shows_progress_ && std::filesystem::is_regular_file(arguments.input)) {
    total_ = count_lines(arguments.input);
  }
}

LineFilter::~LineFilter() = default;

void LineFilter::run(int64_t block_lines,
                     const std::function<void(const std::vector<std::string>&, int64_t)>& answer) {
  std::vector<std::string> block;
  double begun = 0;  // of the block
  int64_t number = 0;
  const auto flush = [&] {
    if (block.empty()) return;
    answer(block, number - std::ssize(block));
    answered(number - answered_);
    block.clear();
    ill_formed_now_.clear();
  };
  if (shows_progress_) progress_.emplace(who_, total_, "lines");
  for (std::string text; lines_->next(text);) {
    if (const size_t bad = find_invalid_utf8(text); bad != std::string::npos) {
      if (ill_formed_policy_ == "error") flush();
      mend(text, number, bad);
    }
    ++number;
    if (block.empty()) begun = steady_seconds();
    block.push_back(std::move(text));
    if (std::ssize(block) >= block_lines || lines_->enough(begun)) flush();
  }
  flush();
}

void LineFilter::mend(std::string& line, int64_t number, size_t bad) {
  const std::string place = concat(place_of_line(number + 1), " at byte ", bad + 1);
  if (ill_formed_policy_ == "error") {
    fail(ErrorKind::kData, '[', who_, "] line ", number + 1, " is not UTF-8 at byte ", bad + 1,
         "; --ill-formed empty answers it like an empty one.");
  }
  if (ill_formed_++ == 0) first_ill_formed_ = place;
  if (ill_formed_policy_ == "replace") {
    std::string repaired;
    for (size_t i = 0; i < line.size();) append_utf8(repaired, next_code_point(line, i));
    line = std::move(repaired);
  } else {
    line.clear();
    ill_formed_now_.insert(number);
  }
}

bool LineFilter::takes_record(int64_t number, const std::function<void()>& read) {
  try {
    read();
    ++records_;
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData || ill_formed_policy_ == "error") throw;
    if (odd_++ == 0) first_odd_ = error.what();
    if (records_ == 0 && odd_ == RecordReader::kMostOdd) throw;
    ill_formed_now_.insert(number);
    return false;
  }
}

void LineFilter::read(std::span<const int32_t> ids, const Tokenizer& tokenizer, int64_t number) {
  unknown_.count(ids, tokenizer.special().unk, place_of_line(number + 1));
}

void LineFilter::answered(int64_t lines) {
  answered_ += lines;
  {
    const ProgressLine::Hidden hidden;  // answers may go to the same terminal
    output_.flush();
  }
  if (progress_) progress_->to(answered_);
}

void LineFilter::finish() {
  progress_.reset();
  if (odd_ > 0 && records_ == 0) throw Error(ErrorKind::kData, first_odd_);
  output_.finish();
  if (ill_formed_ > 0) {
    std::cerr << concat("warning: ", ill_formed_, ill_formed_ == 1 ? " line is" : " lines are",
                        " not UTF-8 (first ", first_ill_formed_, "): ",
                        ill_formed_policy_ == "replace" ? "ill-formed bytes are read as U+FFFD.\n"
                                                        : "the answer is that of an empty line.\n");
  }
  if (odd_ > 0) {
    std::cerr << concat("warning: ", odd_, odd_ == 1 ? " line is" : " lines are",
                        " no record and answered like an empty one; the first: ", first_odd_, '\n');
  }
  if (unknown_.unknown > 0) {
    std::cerr << concat(unknown_.share() < kManyUnknown ? "note: " : "warning: ",
                        unknown_.summary("the tokens that were read"),
                        unknown_.unknown == 1 ? " is" : " are", " unknown to the vocabulary.\n");
  }
}

}  // namespace tapestry
