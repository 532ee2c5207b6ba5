#include "data/corpora/records/chat_reader.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/chat/lost_members.h"
#include "data/corpora/filtering_reader.h"
#include "data/corpora/records/json_lines.h"
#include "data/corpora/records/jsonl_reader.h"
#include "data/corpora/records/names_twice.h"
#include "data/files/text.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

class ChatReader : public FilteringReader {
 public:
  explicit ChatReader(const CorpusSpec& spec)
      : FilteringReader(spec), lines_(open_json_lines(spec.records, {})) {
    if (spec.chat != nullptr) format_ = *spec.chat;
  }

 protected:
  bool fetch(TextPair& pair) override {
    while (lines_->next(line_)) {
      if (lines_->was_too_long()) {
        odd(concat("a line of more than ", LineReader::kMaxLineBytes >> 20, " MiB"));
        continue;
      }
      if (is_blank(line_)) continue;
      if (find_invalid_utf8(line_) != std::string::npos) {
        ++counts_.read;
        drop(Drop::kInvalidUtf8, lines_->place());
        continue;
      }
      if (take(pair)) return true;
    }
    if (!any_ && odd_ > 0) fail_odd();
    return false;
  }

 private:
  bool take(TextPair& pair) {
    Json record;
    try {
      std::string problem = parse_talk(line_, record);
      if (problem.empty()) {
        problem = spec_.compares_talks() ? take_two(record, pair) : take_talk(record, pair);
      }
      if (!problem.empty()) return odd(problem);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      return odd(error.what());
    }
    pair.place = lines_->place();
    return any_ = true;
  }

  // These return what is wrong.
  std::string take_talk(const Json& record, TextPair& pair) const {
    const bool answered = format_.loss_on != LossOn::kText;
    std::string problem = talk_problem(record, spec_.messages_column, answered);
    if (problem.empty()) problem = lost_member(format_, record, spec_.messages_column);
    if (!problem.empty()) return problem;
    Talk talk = talk_of(format_, record, spec_.messages_column);
    pair.source = std::move(talk.text);
    pair.target.clear();
    pair.answers = std::move(talk.answers);
    return "";
  }
  std::string take_two(const Json& record, TextPair& pair) const {
    ComparedTalks talks;
    std::string problem = compare_talks(
        format_, record, {spec_.prompt_column, spec_.chosen_column, spec_.rejected_column}, talks);
    pair.source = std::move(talks.prompt);
    pair.target = std::move(talks.chosen);
    pair.rejected = std::move(talks.rejected);
    return problem;
  }

  bool odd(const std::string& reason) {
    ++counts_.read;
    if (odd_++ == 0) first_odd_ = concat("[data] ", lines_->place(), ": ", reason);
    drop(Drop::kMalformed, concat(lines_->place(), ": ", reason));
    if (!any_ && odd_ == RecordReader::kMostOdd) fail_odd();
    return false;
  }
  [[noreturn]] void fail_odd() const {
    fail(ErrorKind::kData, first_odd_, first_odd_.ends_with('.') ? "" : ".");
  }

  const std::unique_ptr<JsonLines> lines_;
  std::string line_, first_odd_;
  ChatFormat format_;
  int64_t odd_ = 0;
  bool any_ = false;
};

}  // namespace

std::string parse_talk(const std::string& line, Json& record) {
  std::string twice;
  record = parse_names_once<Json>(line, twice);
  if (record.is_discarded()) return json_problem(line);
  return twice.empty() ? "" : concat("names '", twice, "' twice");
}

std::unique_ptr<PairReader> open_talks(const CorpusSpec& spec) {
  return std::make_unique<ChatReader>(spec);
}

}  // namespace tapestry
