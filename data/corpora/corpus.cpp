#include "data/corpora/corpus.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/corpora/records/records.h"

namespace tapestry {
namespace {

// Checks the keys that select a part of a corpus.
void validate_part(const CorpusSpec& spec, const OptionReport& report) {
  const bool file = spec.documents == "file";
  const bool images = spec.kind() == CorpusSpec::Kind::kImages;
  report.expect(spec.range_begin >= 0 && spec.range_begin < spec.range_end && spec.range_end <= 1,
                "range_begin", "must be below range_end, both in [0, 1], got ", spec.range_begin,
                " and ", spec.range_end, '.');
  const bool whole = spec.range_begin == 0 && spec.range_end == 1;
  report.expect(whole || file || images, "range_begin", "needs documents file, got ",
                spec.documents, "; use split for parts of many documents.");
  report.expect(spec.split == "all" || !images, "split", "applies only to texts, got ", spec.split,
                " for images; use a range.");
  report.expect(spec.split == "all" || !file, "split", "needs many documents, got ", spec.split,
                " with documents file; use a range.");
}

using Kind = CorpusSpec::Kind;

/// A column that a kind of records has.
struct Column {
  const char* name;
  std::string CorpusSpec::*member;
  const char* number;  ///< used if columns have no names
};

std::vector<Column> columns_of(Kind kind) {
  switch (kind) {
    case Kind::kPairs:
      return {{"source_column", &CorpusSpec::source_column, "1"},
              {"target_column", &CorpusSpec::target_column, "2"}};
    case Kind::kText:
      return {{"text_column", &CorpusSpec::text_column, "1"}};
    case Kind::kLabelled:
      return {{"label_column", &CorpusSpec::label_column, "1"},
              {"text_column", &CorpusSpec::text_column, "2"}};
    case Kind::kQuestions:
      return {{"context_column", &CorpusSpec::context_column, "1"},
              {"question_column", &CorpusSpec::question_column, "2"},
              {"answer_column", &CorpusSpec::answer_column, "3"},
              {"answer_start_column", &CorpusSpec::answer_start_column, "4"}};
    case Kind::kTagged:
      return {{"tokens_column", &CorpusSpec::tokens_column, "1"},
              {"tags_column", &CorpusSpec::tags_column, "2"}};
    case Kind::kPoints:
      return {{"x_column", &CorpusSpec::x_column, "1"}, {"y_column", &CorpusSpec::y_column, "2"}};
    case Kind::kParallel:
    case Kind::kDing:
    case Kind::kImages:
    case Kind::kPrompted:
    case Kind::kTalks:
    case Kind::kPreferences:
      break;
  }
  return {};
}

constexpr Kind kOfColumns[] = {Kind::kPairs,     Kind::kText,   Kind::kLabelled,
                               Kind::kQuestions, Kind::kTagged, Kind::kPoints};

// Columns that records may have besides.
constexpr std::pair<const char*, std::string CorpusSpec::*> kBeside[] = {
    {"text_pair_column", &CorpusSpec::text_pair_column},
    {"pair_weight_column", &CorpusSpec::pair_weight_column},
    {"negative_column", &CorpusSpec::negative_column},
    {"score_column", &CorpusSpec::score_column}};

bool any_column(const CorpusSpec& spec, Kind kind) {
  const bool lists = !spec.x_columns.empty() || !spec.class_column.empty();
  if (kind == Kind::kPoints && lists) return true;
  const bool beside = !spec.pair_weight_column.empty() || !spec.negative_column.empty() ||
                      !spec.score_column.empty();
  if (kind == Kind::kPairs && beside) return true;
  if (kind == Kind::kLabelled && spec.has_two_texts()) return true;
  const std::vector<Column> columns = columns_of(kind);
  return std::any_of(columns.begin(), columns.end(),
                     [&](const Column& column) { return !(spec.*column.member).empty(); });
}

// A name that looks like a number is a mistake. Sets `value`.
bool is_number(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return at == end && text.find_first_of("0123456789") != std::string::npos;
}

// The columns that records of a kind are asked for, with their keys.
std::vector<std::pair<const char*, std::string>> asked_columns(const CorpusSpec& spec, Kind kind) {
  std::vector<std::pair<const char*, std::string>> asked;
  if (kind == Kind::kPoints) {
    const char* const key = spec.x_columns.empty() ? "x_column" : "x_columns";
    for (const std::string& name : spec.features()) asked.emplace_back(key, name);
    const bool classes = !spec.class_column.empty();
    asked.emplace_back(classes ? "class_column" : "y_column",
                       classes ? spec.class_column : spec.y_column);
    return asked;
  }
  for (const Column& column : columns_of(kind)) {
    asked.emplace_back(column.name, spec.*column.member);
  }
  for (const auto& [key, member] : kBeside) {
    if (!(spec.*member).empty()) asked.emplace_back(key, spec.*member);
  }
  return asked;
}

// The columns of one kind of records are there, and others are not asked for.
void validate_columns(const CorpusSpec& spec, Kind kind, const OptionReport& report) {
  const std::vector<Column> columns = columns_of(kind);
  for (const Kind other : kOfColumns) {
    for (const Column& column : columns_of(other)) {
      const bool own = std::any_of(columns.begin(), columns.end(),
                                   [&](const Column& one) { return one.member == column.member; });
      const bool can_have = spec.has_records() || !spec.conll.empty();
      report.expect((own && can_have) || (spec.*column.member).empty(), column.name,
                    "does not belong to this kind of corpus, got ", spec.str(), '.');
    }
  }
  const bool lists = !spec.x_columns.empty() || !spec.class_column.empty();
  report.expect(!lists || (kind == Kind::kPoints && spec.has_records()), "x_columns",
                "and class_column belong to points, got ", spec.str(), '.');
  if (!spec.has_records()) return;
  const auto asked = asked_columns(spec, kind);
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& [key, name] = asked[i];
    double number = 0;
    if (is_number(name, number) && !is_column_number(name)) {
      report.expect(false, key,
                    number < 1 ? "must be at least 1, got "
                               : "must be a whole number below 1e9 or a name, got ",
                    name, '.');
    }
    report.expect(!name.empty(), key, "must be a number or a name, got nothing.");
    report.expect(
        spec.records.header != "no" || !spec.records.format->has_columns || is_column_number(name),
        key, "must be a number without a header, got '", name, "'.");
    for (size_t j = 0; j < i; ++j) {
      report.expect(name != asked[j].second, key, "must differ from ",
                    std::string_view(asked[j].first) == key ? "the others" : asked[j].first,
                    ", got ", name, " twice.");
    }
  }
}

// Words and tags are in columns with numbers.
void validate_conll(const CorpusSpec& spec, const OptionReport& report) {
  report.expect(is_column_number(spec.tokens_column), "tokens_column",
                "must be a column's number from 1, got '", spec.tokens_column, "'.");
  report.expect(is_column_number(spec.tags_column) || spec.tags_column == CorpusSpec::kLastColumn,
                "tags_column", "must be a column's number from 1, or ", CorpusSpec::kLastColumn,
                ", got '", spec.tags_column, "'.");
  report.expect(spec.tokens_column != spec.tags_column, "tags_column",
                "must differ from tokens_column, got ", spec.tags_column, " twice.");
}

// A template of records. Columns count from 1.
void validate_template(const OptionReport& report, const char* member, const std::string& text,
                       bool columns) {
  const std::string problem = Template::problem_of(text);
  if (!report.expect(problem.empty(), member, problem) || !columns) return;
  const Template parsed(text);
  for (const std::string& field : parsed.fields()) {
    double number = 0;
    report.expect(!is_number(field, number) || is_column_number(field), member,
                  "must name the columns by their numbers from {1}, or as the header does, got {",
                  field, "}.");
  }
}

}  // namespace

CorpusSpec::Kind CorpusSpec::kind() const {
  const OptionReport report = OptionReport::throwing("data");
  const bool parallel = !source.empty() || !target.empty();
  report.expect(parallel + has_records() + !ding.empty() + !text.empty() + !images.empty() +
                        !squad.empty() + !conll.empty() ==
                    1,
                "", "a corpus must have exactly one of source and target, ",
                record_format_names(", "), ", ding, text, images, squad, conll, got ",
                str().empty() ? "none" : str(), '.');
  report.expect(!parallel || (!source.empty() && !target.empty()), "",
                "a corpus must have source and target, got only ",
                source.empty() ? "target " : "source ", str(), '.');
  if (parallel) return Kind::kParallel;
  if (!ding.empty()) return Kind::kDing;
  if (!text.empty()) return Kind::kText;
  if (!images.empty()) return Kind::kImages;
  if (!squad.empty()) return Kind::kQuestions;
  if (!conll.empty()) return Kind::kTagged;
  if (!messages_column.empty()) return Kind::kTalks;
  if (compares_talks() || !chosen.empty() || !rejected.empty()) return Kind::kPreferences;
  if (!prompt.empty() || !answer.empty()) return Kind::kPrompted;
  if (!label_column.empty() || has_two_texts()) return Kind::kLabelled;
  for (const Kind one :
       {Kind::kQuestions, Kind::kTagged, Kind::kPoints, Kind::kText, Kind::kPairs}) {
    if (any_column(*this, one)) return one;
  }
  return records.format == &kTsv   ? Kind::kPairs
         : records.format == &kCsv ? Kind::kPoints
                                   : Kind::kQuestions;
}

bool CorpusSpec::has_target() const {
  const Kind it = kind();
  return it == Kind::kParallel || it == Kind::kPairs || it == Kind::kDing;
}

namespace {

constexpr std::pair<const char*, std::string CorpusSpec::*> kFiles[] = {
    {"source", &CorpusSpec::source},
    {"target", &CorpusSpec::target},
    {"ding", &CorpusSpec::ding},
    {"text", &CorpusSpec::text},
    {"images", &CorpusSpec::images},
    {"labels", &CorpusSpec::labels},
    {"squad", &CorpusSpec::squad},
    {"conll", &CorpusSpec::conll},
    {"pair_weights", &CorpusSpec::pair_weights},
    {"alignments", &CorpusSpec::alignments}};

}  // namespace

std::vector<std::string> CorpusSpec::file_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, member] : kFiles) keys.emplace_back(key);
  for (const RecordFormat* format : record_formats()) keys.emplace_back(format->name);
  return keys;
}

const std::string& CorpusSpec::file(std::string_view key) const {
  static const std::string none;
  if (key == records.format->name) return records.path;
  for (const auto& [name, member] : kFiles) {
    if (key == name) return this->*member;
  }
  return none;
}

void CorpusSpec::set_file(std::string_view key, const std::string& path) {
  if (key == records.format->name) records.path = path;
  for (const auto& [name, member] : kFiles) {
    if (key == name) this->*member = path;
  }
}

void CorpusSpec::forget_files() {
  for (const auto& [key, member] : kFiles) (this->*member).clear();
  records.path.clear();
}

void CorpusSpec::settle_columns(Kind kind) {
  if (!conll.empty()) {
    if (tokens_column.empty()) tokens_column = columns_of(Kind::kTagged).front().number;
    if (tags_column.empty()) tags_column = kLastColumn;
  }
  if (!has_records()) return;
  const RecordFormat& format = *records.format;
  const bool numbers = format.by_numbers || (kind == Kind::kPoints && format.has_columns);
  for (const Column& column : columns_of(kind)) {
    std::string& name = this->*column.member;
    if (!name.empty()) continue;
    const std::string_view key = column.name;
    if (column.member == &CorpusSpec::x_column && !x_columns.empty()) continue;
    const bool chosen = !x_columns.empty() || !class_column.empty();
    if (column.member == &CorpusSpec::y_column && chosen) continue;
    name = numbers ? column.number : std::string(key.substr(0, key.rfind("_column")));
  }
}

void CorpusSpec::validate(const OptionReport& report) const {
  const Kind it = kind();
  report.expect(x_columns.empty() || x_column.empty(), "x_columns", "exclude x_column, got ",
                x_column, '.');
  report.expect(class_column.empty() || y_column.empty(), "class_column", "excludes y_column, got ",
                y_column, '.');
  report.expect(x_columns.empty() || !class_column.empty() || !y_column.empty(), "x_columns",
                "need a y_column or a class_column.");
  CorpusSpec settled = *this;
  settled.settle_columns(it);
  validate_columns(settled, it, report);
  if (!conll.empty()) validate_conll(settled, report);
  if (it == Kind::kPrompted) {
    validate_template(report, "prompt", prompt, records.format->has_columns);
    validate_template(report, "answer", answer, records.format->has_columns);
  }
  const bool compared = it == Kind::kPreferences && !compares_talks();
  if (compared) {
    for (const auto& [key, text] : {std::pair{"prompt", &prompt}, std::pair{"chosen", &chosen},
                                    std::pair{"rejected", &rejected}}) {
      validate_template(report, key, *text, records.format->has_columns);
    }
  }
  report.expect(it == Kind::kPrompted || compared || (prompt.empty() && answer.empty()), "prompt",
                "and answer need ", record_format_names(), ", got ", str(), '.');
  const bool in_json = has_records() && records.format->json_lines != nullptr;
  report.expect(messages_column.empty() || in_json, "messages_column",
                "needs a jsonl or parquet, got ", str(), '.');
  if (compares_talks()) {
    report.expect(in_json, "chosen_column", "needs a jsonl or parquet, got ", str(), '.');
    report.expect(!chosen_column.empty() && !rejected_column.empty(), "chosen_column",
                  "and rejected_column stand together, got '", chosen_column, "' and '",
                  rejected_column, "'.");
    report.expect(chosen_column != rejected_column, "rejected_column",
                  "must differ from chosen_column, got ", chosen_column, " twice.");
  }
  const std::string& header = records.header;
  report.expect_one_of("header", header, RecordFile::kHeaders);
  report.expect(header == "auto" || (has_records() && records.format->has_columns), "header",
                "applies only to columns, got ", header, " with ", str(), '.');
  report.expect(labels.empty() || it == Kind::kImages, "labels", "need images, got ", str(), '.');
  report.expect_one_of("documents", documents, kDocuments);
  report.expect(documents == "lines" || !text.empty(), "documents", "applies only to text, got ",
                documents, " with ", str(), '.');
  validate_part(*this, report);
  report.expect_one_of("direction", direction, kDirections);
  report.expect(min_words >= 1, "min_words", "must be 1 or more, got ", min_words, '.');
  report.expect_one_of("split", split, kSplits);
  report.expect(limit >= 0, "limit", "must be 0 (none) or more, got ", limit, '.');
  report.expect(pair_weights.empty() || it == Kind::kParallel, "pair_weights",
                "stand beside source and target, got ", str(),
                "; records have pair_weight_column.");
  report.expect(alignments.empty() || it == Kind::kParallel, "alignments",
                "stand beside source and target, got ", str(), '.');
  report.expect(!has_two_texts() || it == Kind::kLabelled, "text_pair_column",
                "belongs to texts with labels, got ", str(), '.');
  const bool pairs = it == Kind::kPairs && has_records();
  for (const auto& [key, column] :
       {std::pair{"pair_weight_column", &pair_weight_column},
        std::pair{"negative_column", &negative_column}, std::pair{"score_column", &score_column}}) {
    report.expect(column->empty() || pairs, key, "belongs to pairs in a ", record_format_names(),
                  ", got ", str(), '.');
  }
  report.expect(negative_column.empty() || score_column.empty(), "score_column",
                "excludes negative_column, got ", score_column, '.');
}

std::string CorpusSpec::str() const {
  std::vector<std::string> names;
  for (const std::string& key : file_keys()) {
    const bool beside = key == "pair_weights" || key == "alignments";
    if (!beside && !file(key).empty()) names.push_back(file(key));
  }
  return join(names, ", ");
}

}  // namespace tapestry
