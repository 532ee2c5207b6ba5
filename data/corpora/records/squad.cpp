// Questions as files have them: SQuAD's one JSON document, or a record a line.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/nearest_name.h"
#include "data/corpora/records/names_twice.h"
#include "data/corpora/records/records.h"
#include "data/corpora/records/squad.h"
#include "data/corpora/shards.h"
#include "data/files/unpacked_file.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;

// The byte of a character of the text; npos behind its end.
size_t byte_of(const std::string& text, int64_t character) {
  size_t at = 0;
  for (int64_t i = 0; i < character && at < text.size(); ++i) next_code_point(text, at);
  return character < 0 || at == text.size() ? std::string::npos : at;
}

// Takes questions until the limit, and counts unusable ones.
class Collector {
 public:
  Collector(const CorpusSpec& spec, FilterCounts& counts) : limit_(spec.limit), counts_(counts) {}

  bool is_full() const { return limit_ > 0 && kept_ == limit_; }

  /// Adds an answer that begins at a character of the context; false if the context differs there.
  static bool add_answer(Question& question, const std::string& text, int64_t character) {
    const std::string& context = *question.context;
    const size_t begin = byte_of(context, character);
    if (text.empty() || begin == std::string::npos) return false;
    if (context.compare(begin, text.size(), text) != 0) return false;
    question.answers.push_back({text, static_cast<int64_t>(begin)});
    return true;
  }

  void add(Question question, bool well_formed) {
    ++counts_.read;
    if (!well_formed) return counts_.drop(Drop::kMalformed, question.place);
    if (is_blank(*question.context) || is_blank(question.question)) {
      return counts_.drop(Drop::kEmpty, question.place);
    }
    ++kept_;
    questions_.push_back(std::move(question));
  }

  /// Counts an invalid record.
  void drop(Drop reason, const std::string& place) {
    ++counts_.read;
    counts_.drop(reason, place);
  }

  /// Calls add(question, well-formed) with the result of `read`; if that throws Error(kData), which
  /// names a place, the question is malformed.
  template <class Read>
  void add_read(Read read) {
    std::optional<std::pair<Question, bool>> got;
    try {
      got = read();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      std::string problem = error.what();
      if (problem.starts_with(kMark)) problem.erase(0, kMark.size());
      if (problem.ends_with('.')) problem.pop_back();
      return drop(Drop::kMalformed, problem);
    }
    add(std::move(got->first), got->second);
  }

  std::vector<Question> take() { return std::move(questions_); }

 private:
  static constexpr std::string_view kMark = "[data] ";

  int64_t limit_, kept_ = 0;
  FilterCounts& counts_;
  std::vector<Question> questions_;
};

// A value inside a JSON document with its place.
class Node {
 public:
  Node(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  Node at(const char* key) const {
    if (!has(key)) fail_here(concat("must have '", key, "'"));
    return {json_[key], concat(place_, '.', key)};
  }
  std::vector<Node> items() const {
    if (!json_.is_array()) fail_here("must be a list");
    std::vector<Node> nodes;
    for (size_t i = 0; i < json_.size(); ++i) {
      nodes.emplace_back(json_[i], concat(place_, '[', i, ']'));
    }
    return nodes;
  }
  std::string text() const {
    if (!json_.is_string()) fail_here("must be a text");
    return json_.get<std::string>();
  }
  int64_t integer() const {
    if (!json_.is_number_integer()) fail_here("must be a whole number");
    return json_.get<int64_t>();
  }
  bool flag() const {
    if (!json_.is_boolean()) fail_here("must be true or false");
    return json_.get<bool>();
  }

 private:
  [[noreturn]] void fail_here(const std::string& what) const {
    fail(ErrorKind::kData, "[data] ", place_, ' ', what, ", as SQuAD's files have it.");
  }

  const Json& json_;
  std::string place_;
};

void read_squad(const std::string& path, Collector& collector) {
  std::string twice;
  const Json json = parse_names_once<Json>(read_unpacked(path), twice);
  if (json.is_discarded()) fail(ErrorKind::kData, "[data] ", path, " must be JSON, got none.");
  if (!twice.empty()) {
    fail(ErrorKind::kData, "[data] ", path, ": an object names '", twice, "' twice.");
  }
  for (const Node& article : Node(json, concat(path, ':')).at("data").items()) {
    for (const Node& paragraph : article.at("paragraphs").items()) {
      const auto context = std::make_shared<const std::string>(paragraph.at("context").text());
      for (const Node& qa : paragraph.at("qas").items()) {
        if (collector.is_full()) return;
        collector.add_read([&] {
          Question question{.id = qa.has("id") ? qa.at("id").text() : "",
                            .context = context,
                            .question = qa.at("question").text(),
                            .answers = {},
                            .place = qa.place()};
          const bool impossible = qa.has("is_impossible") && qa.at("is_impossible").flag();
          bool well_formed = true;
          if (!impossible) {
            for (const Node& answer : qa.at("answers").items()) {
              const int64_t start = answer.at("answer_start").integer();
              well_formed &= Collector::add_answer(question, answer.at("text").text(), start);
            }
          }
          return std::pair(std::move(question), well_formed);
        });
      }
    }
  }
}

// Questions of one answer have it in two columns. Where lists are kept, they may have several as
// `datasets` has them: {"answers": {"text": [...], "answer_start": [...]}}.
constexpr const char* kAnswerLists[] = {"answers.text", "answers.answer_start"};

// Adds the answers of such lists, of which none says that there is none. False if one is not in the
// context, or if the lists have other lengths.
bool add_listed(const std::string& texts, const std::string& starts, const std::string& place,
                Question& question) {
  const auto items = [](const std::string& list) {
    std::vector<std::string> items;
    if (list.empty()) return items;
    std::istringstream stream(list);
    for (std::string item; std::getline(stream, item, RecordField::kListSeparator);) {
      items.push_back(item);
    }
    return items;
  };
  const std::vector<std::string> answers = items(texts), places = items(starts);
  if (answers.size() != places.size()) {
    fail(ErrorKind::kData, "[data] ", place, ": 'answers' has ", answers.size(), " texts and ",
         places.size(), " places.");
  }
  bool well_formed = true;
  for (size_t i = 0; i < answers.size(); ++i) {
    Record answer(place);
    answer.add(kAnswerLists[1], places[i]);
    well_formed &= Collector::add_answer(question, answers[i], answer.integer(kAnswerLists[1]));
  }
  return well_formed;
}

constexpr const char* kNames[] = {"context",      "question", "answer",
                                  "answer_start", "id",       "is_impossible"};
constexpr size_t kLists = std::size(kNames);  // where the fields of lists begin

// A record of a file as one that was written by itself would be.
Record record_of(const RecordValues& values, const std::string& place) {
  Record record(place);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (values.present[i] != 0) record.add(kNames[i], values.texts[i]);
  }
  return record;
}

// A record that says nothing of answers has none, unless one of its names, which nobody asks for,
// is meant to say it.
void check_names(const RecordReader& reader, const std::vector<RecordField>& fields) {
  std::vector<std::string> all, others;
  for (const std::string& name : reader.names()) {
    const std::string top = name.substr(0, name.find('.'));
    if (std::ranges::find(all, top) != all.end()) continue;
    all.push_back(top);
    const bool asked = std::ranges::any_of(fields, [&](const RecordField& field) {
      return field.name == top || field.name.starts_with(top + '.');
    });
    if (!asked) others.push_back(top);
  }
  for (const char* meant : {"answers", "answer", "is_impossible"}) {
    const std::string nearest = nearest_name(meant, others);
    if (nearest.empty()) continue;
    fail(ErrorKind::kData, "[data] ",
         missing_name(reader.place(), "field", all, meant,
                      concat("; '", nearest, "' looks like it")));
  }
}

// The question of a record, and whether it is well-formed. Shares `context` with the one before.
std::pair<Question, bool> read_question(const RecordReader& reader, const RecordValues& values,
                                        const std::vector<RecordField>& fields,
                                        std::shared_ptr<const std::string>& context) {
  const Record record = record_of(values, reader.place());
  Question question = question_of(record, context);
  context = question.context;
  const auto has = [&](size_t field) {
    return field < values.present.size() && values.present[field] != 0;
  };
  bool well_formed = true;
  if (record.flag("is_impossible", false)) {
    // Its answers, if it has some, are those that mislead.
  } else if (record.has("answer")) {
    well_formed =
        Collector::add_answer(question, record.text("answer"), record.integer("answer_start"));
  } else if (has(kLists) || has(kLists + 1)) {
    well_formed =
        add_listed(values.texts[kLists], values.texts[kLists + 1], record.place(), question);
  } else if (!record.has("is_impossible")) {
    check_names(reader, fields);
  }
  return {std::move(question), well_formed};
}

void read_records(CorpusSpec spec, Collector& collector) {
  spec.settle_columns(CorpusSpec::Kind::kQuestions);
  // Questions need no answers, but a name that nobody would guess is no accident.
  const auto answers = [](const std::string& column, const char* usual) {
    return RecordField{.name = column,
                       .optional = true,
                       .asked_for = column != usual && !is_column_number(column)};
  };
  std::vector<RecordField> fields = {{spec.context_column},
                                     {spec.question_column},
                                     answers(spec.answer_column, "answer"),
                                     answers(spec.answer_start_column, "answer_start"),
                                     {.name = "id", .optional = true},
                                     {.name = "is_impossible", .optional = true}};
  check(fields.size() == kLists, "data", "the lists of answers come behind the other fields.");
  if (!spec.records.format->has_columns) {
    for (const char* name : kAnswerLists) {
      fields.push_back({.name = name, .optional = true, .list = true});
    }
  }
  const auto reader = open_records(spec.records, fields);
  std::shared_ptr<const std::string> context;
  RecordValues values;
  while (!collector.is_full()) {
    const RecordReader::Row row = reader->next(values);
    if (row == RecordReader::Row::kEnd) return;
    if (row != RecordReader::Row::kWhole) {
      collector.drop(drop_of(row), reader->place_and_reason());
      continue;
    }
    const auto any = [&values](auto&& test) {
      return std::any_of(values.texts.begin(), values.texts.end(), test);
    };
    if (any([](const std::string& text) { return find_invalid_utf8(text) != text.npos; })) {
      collector.drop(Drop::kInvalidUtf8, reader->place());
      continue;
    }
    if (any([](const std::string& text) { return text.find('\0') != text.npos; })) {
      collector.drop(Drop::kNulByte, reader->place());
      continue;
    }
    collector.add_read([&] { return read_question(*reader, values, fields, context); });
  }
}

}  // namespace

namespace {

// The texts of questions, for a tokenizer: a context with the first question about it, then the
// other questions.
class QuestionTextReader : public PairReader {
 public:
  explicit QuestionTextReader(const CorpusSpec& spec) : questions_(read_questions(spec, counts_)) {}

  bool next(TextPair& pair) override {
    if (next_ == questions_.size()) return false;
    const Question& question = questions_[next_];
    const bool again = next_ > 0 && questions_[next_ - 1].context == question.context;
    pair.source = again ? question.question : *question.context + '\n' + question.question;
    pair.target.clear();
    pair.place = question.place;
    ++next_;
    ++counts_.kept;
    return true;
  }

 private:
  const std::vector<Question> questions_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<PairReader> open_question_texts(const CorpusSpec& spec) {
  return std::make_unique<QuestionTextReader>(spec);
}

Question question_of(const Record& record, const std::shared_ptr<const std::string>& before) {
  const std::string& context = record.text("context");
  const bool same = before != nullptr && *before == context;
  return {.id = record.has("id") ? record.text("id") : "",
          .context = same ? before : std::make_shared<const std::string>(context),
          .question = record.text("question"),
          .answers = {},
          .place = record.place()};
}

std::vector<Question> read_questions(const CorpusSpec& spec, FilterCounts& counts) {
  spec.validate();
  if (spec.kind() != CorpusSpec::Kind::kQuestions) {
    fail(ErrorKind::kConfig, "[data] expected questions (squad, ", record_format_names(), "), got ",
         spec.str(), '.');
  }
  Collector collector(spec, counts);
  for (const CorpusSpec& shard : shards_of(spec)) {
    if (collector.is_full()) break;
    if (shard.squad.empty()) {
      read_records(shard, collector);
    } else {
      read_squad(shard.squad, collector);
    }
  }
  return collector.take();
}

}  // namespace tapestry
