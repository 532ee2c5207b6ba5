#include "data/corpora/records/tagged_reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/base/error.h"
#include "data/corpora/filtering_reader.h"
#include "data/corpora/records/json_lines.h"
#include "data/corpora/records/records.h"

namespace tapestry {
namespace {

constexpr const char* kDocumentStart = "-DOCSTART-";

bool is_space(char c) { return c == ' ' || c == '\t'; }

// The parts of a text between runs of characters that `separates`.
template <class Separates>
std::vector<std::string> parts_of(std::string_view text, Separates separates) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    while (at < text.size() && separates(text[at])) ++at;
    const size_t begin = at;
    while (at < text.size() && !separates(text[at])) ++at;
    if (at > begin) parts.emplace_back(text.substr(begin, at - begin));
  }
  return parts;
}

// The items of a list of a jsonl; in other formats the words of a text.
std::vector<std::string> items_of(const std::string& text, bool is_list) {
  if (!is_list) return parts_of(text, is_space);
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(RecordField::kListSeparator, begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

// The reason why these are no words with tags; "" if they are.
std::string problem_of(std::span<const std::string> words, std::span<const std::string> tags) {
  if (words.size() != tags.size()) {
    return concat(words.size(), " words and ", tags.size(), " tags");
  }
  for (size_t i = 0; i < words.size(); ++i) {
    for (const std::string* text : {&words[i], &tags[i]}) {
      const char* const what = text == &words[i] ? "word " : "tag ";
      if (is_blank(*text)) return concat(what, i + 1, " shows nothing");
      if (text->find('\n') != std::string::npos) return concat(what, i + 1, " has a line end");
    }
  }
  return "";
}

void set_pair(std::span<const std::string> words, std::span<const std::string> tags,
              TextPair& pair) {
  pair.source.clear();
  pair.target.clear();
  for (size_t i = 0; i < words.size(); ++i) {
    pair.source += concat(i > 0 ? " " : "", words[i]);
    pair.target += concat(words[i].size(), ' ', tags[i], '\n');
  }
}

class ConllReader : public FilteringReader {
 public:
  explicit ConllReader(const CorpusSpec& spec) : FilteringReader(spec), lines_(spec.conll) {
    const auto number = [](const std::string& column) {
      size_t value = 0;
      std::from_chars(column.data(), column.data() + column.size(), value);
      return value;  // 0: the last one
    };
    word_ = number(spec.tokens_column);
    tag_ = number(spec.tags_column);
    look_at_first_word(spec.conll);
  }

 protected:
  bool fetch(TextPair& pair) override {
    while (read_sentence(pair)) {
      if (missing_.empty()) {
        set_pair(words_, tags_, pair);
        return true;
      }
      ++counts_.read;
      drop(Drop::kMissingColumn, missing_);
    }
    return false;
  }

 private:
  static int64_t tabs_in(const std::string& line) {
    return std::count(line.begin(), line.end(), '\t');
  }

  // Looks at the first line that may be no comment.
  void look_at_first_word(const std::string& path) {
    LineReader lines(path);
    for (std::string line; lines.next(line);) {
      const std::vector<std::string> columns = parts_of(line, is_space);
      const bool other = columns.empty() || columns[0] == kDocumentStart;
      if (other || columns[0].starts_with('#')) continue;
      first_ = columns.size();
      first_tabs_ = tabs_in(line);
      return;
    }
  }

  // "# sent_id = 5", but not "# O", a word with its tag.
  bool is_comment(const std::vector<std::string>& columns) const {
    if (columns.empty() || !columns[0].starts_with('#')) return false;
    const bool names = columns[0] == "#" && columns.size() > 2 && columns[2] == "=";
    return names || columns.size() != first_ || tabs_in(line_) != first_tabs_;
  }

  // Sets words_, tags_ and the place; false at the end of the file.
  bool read_sentence(TextPair& pair) {
    words_.clear();
    tags_.clear();
    missing_.clear();
    while (lines_.next(line_)) {
      const std::vector<std::string> columns = parts_of(line_, is_space);
      if (is_comment(columns)) continue;
      const bool ends = columns.empty() || columns[0] == kDocumentStart;
      if (ends && words_.empty() && missing_.empty()) continue;
      if (ends) return true;
      if (words_.empty() && missing_.empty()) pair.place = lines_.place();
      const size_t tag = tag_ == 0 ? std::max<size_t>(first_, word_ + 1) : tag_;
      const size_t wanted = std::max(word_, tag);
      // The last column of a line with others than the first one is anything.
      if (columns.size() < wanted || (tag_ == 0 && columns.size() > wanted)) {
        if (missing_.empty()) {
          missing_ = concat(lines_.place(), ": ", columns.size(),
                            columns.size() == 1 ? " column" : " columns", ", expected ", wanted);
        }
        continue;
      }
      words_.push_back(columns[word_ - 1]);
      tags_.push_back(columns[tag - 1]);
    }
    return !words_.empty() || !missing_.empty();
  }

  LineReader lines_;
  std::string line_;
  size_t word_ = 1, tag_ = 0;  // columns from 1; 0: the last one
  size_t first_ = 0;           // columns of the first line with a word
  int64_t first_tabs_ = 0;     // and its tabs
  std::vector<std::string> words_, tags_;
  std::string missing_;  // the first line of the sentence that lacks a column
};

// The usual name of a list of tags is not the same everywhere: that of the first record counts.
std::string tags_field(const CorpusSpec& spec) {
  std::error_code unknown;
  const bool usual = spec.records.format->json_lines != nullptr && spec.tags_column == "tags";
  if (!usual || !std::filesystem::is_regular_file(spec.records.path, unknown)) {
    return spec.tags_column;
  }
  const std::vector<std::string> usual_names = {"tags", "labels", "ner_tags"};
  const auto lines = open_json_lines(spec.records, usual_names);
  std::string line;
  while (lines->next(line)) {
    if (is_blank(line)) continue;
    try {
      const Record record = parse_json_record(line, lines->place());
      for (const std::string& name : usual_names) {
        if (record.has(name)) return name;
      }
    } catch (const Error&) {
      // Its reader reports it.
    }
    break;
  }
  return spec.tags_column;
}

class TaggedRecordReader : public FilteringReader {
 public:
  explicit TaggedRecordReader(const CorpusSpec& spec)
      : FilteringReader(spec),
        is_list_(!spec.records.format->has_columns),
        records_(open_records(spec.records, {{.name = spec.tokens_column, .list = true},
                                             {.name = tags_field(spec), .list = true}})) {}

 protected:
  bool fetch(TextPair& pair) override {
    while (true) {
      const RecordReader::Row row = records_->next(values_);
      if (row == RecordReader::Row::kEnd) return false;
      pair.place = records_->place();
      if (row != RecordReader::Row::kWhole) {
        ++counts_.read;
        drop(drop_of(row), records_->place_and_reason());
        continue;
      }
      const auto words = items_of(values_.texts[0], is_list_);
      const auto tags = items_of(values_.texts[1], is_list_);
      const std::string problem = problem_of(words, tags);
      if (problem.empty()) {
        set_pair(words, tags, pair);
        return true;
      }
      ++counts_.read;
      drop(Drop::kMalformed, concat(pair.place, ": ", problem));
    }
  }

 private:
  bool is_list_;
  std::unique_ptr<RecordReader> records_;
  RecordValues values_;
};

}  // namespace

std::unique_ptr<PairReader> open_tagged(const CorpusSpec& spec) {
  if (!spec.conll.empty()) return std::make_unique<ConllReader>(spec);
  return std::make_unique<TaggedRecordReader>(spec);
}

std::vector<TaggedWord> words_of(const TextPair& pair) {
  std::vector<TaggedWord> words;
  const std::string_view all = pair.target;
  int64_t begin = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t space = all.find(' ', at), end = all.find('\n', space);
    int64_t size = 0;
    std::from_chars(all.data() + at, all.data() + space, size);
    words.push_back({begin, begin + size, all.substr(space + 1, end - space - 1)});
    begin += size + 1;
    at = end + 1;
  }
  return words;
}

TextPair tagged_pair(std::span<const std::string> words, std::span<const std::string> tags,
                     const std::string& place) {
  const std::string problem = words.empty() ? "no words" : problem_of(words, tags);
  check(problem.empty(), "tagged", "expected words with a tag each, got ", problem, '.');
  TextPair pair;
  set_pair(words, tags, pair);
  pair.place = place;
  return pair;
}

}  // namespace tapestry
