#include "data/examples/points.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/batches/batch_rows.h"
#include "data/corpora/encode_corpus.h"
#include "data/corpora/shards.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

void append_number(std::string& text, double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text.append(digits, end);
}

// A text as a field of a CSV.
std::string quoted(const std::string& text) {
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? "\"\"" : std::string(1, c);
  return field + '"';
}

// Points as they are read, with the names of their classes.
struct NamedPoints {
  Points points;
  std::vector<std::string> names;
  std::vector<FilterCounts> counts;  ///< of each corpus
};

// What a row that is no point has instead. `whole`: its columns are as asked for; `two`: there must
// be only two of them.
std::string what_is_odd(const RecordReader& reader, const RecordValues& values, bool whole,
                        bool two) {
  std::string got = reader.reason();
  if (!got.empty()) return got;
  if (!whole) {
    return concat(reader.columns(), reader.columns() == 1 ? " column" : " columns",
                  two && reader.columns() > 2 ? "; x_column and y_column choose two" : "");
  }
  for (size_t i = 0; i < values.texts.size(); ++i) {
    const bool last = i + 1 == values.texts.size();
    got += concat(i == 0 ? "'" : last ? " and '" : ", '", values.texts[i], '\'');
  }
  return got;
}

// Throws Error(kConfig) unless the spec is of points.
void check_points(const CorpusSpec& spec) {
  spec.validate();
  if (spec.kind() == CorpusSpec::Kind::kPoints) return;
  fail(ErrorKind::kConfig, "[data] regression needs points in a ", record_format_names(), ", got ",
       spec.str(), '.');
}

// Of one shard; returns the number of points.
int64_t read_shard(CorpusSpec spec, NamedPoints& read) {
  // With more than two columns the config must choose some.
  const bool chosen = !spec.x_column.empty() || !spec.y_column.empty() || !spec.x_columns.empty() ||
                      !spec.class_column.empty();
  const bool two = !chosen && spec.records.format->has_columns, named = !spec.class_column.empty();
  spec.settle_columns(CorpusSpec::Kind::kPoints);
  RecordFile file = spec.records;
  std::vector<RecordField> fields;
  for (const std::string& column : spec.features()) fields.push_back({column});
  const size_t features = fields.size();
  fields.push_back({named ? spec.class_column : spec.y_column});
  const bool numbered = std::ranges::all_of(
      fields, [](const RecordField& field) { return is_column_number(field.name); });
  // Numbers are not names, so the first line itself shows if it is a header.
  const bool maybe_header = file.header == "auto" && numbered;
  if (maybe_header) file.header = "no";
  const auto reader = open_records(file, fields);
  Points& points = read.points;
  FilterCounts& counts = read.counts.back();
  const int64_t before = points.size();
  const char* const wanted = named           ? "numbers and a class"
                             : features == 1 ? "two numbers"
                                             : "numbers";
  RecordValues values;
  std::vector<double> x(features);
  std::string first_odd;
  int64_t odd = 0;
  const auto fail_odd = [&] { fail(ErrorKind::kData, "[data] ", first_odd, '.'); };
  for (bool first = true; spec.limit == 0 || points.size() < before + spec.limit; first = false) {
    const RecordReader::Row row = reader->next(values);
    if (row == RecordReader::Row::kEnd) break;
    if (row == RecordReader::Row::kBlank) continue;
    double y = 0;
    const bool whole = row == RecordReader::Row::kWhole && !(two && reader->columns() > 2);
    size_t numbers = 0;  // among x
    for (size_t i = 0; whole && i < features; ++i) numbers += parse_number(values.texts[i], x[i]);
    const std::string last = whole ? values.texts.back() : "";
    const bool is_y = whole && (named ? !is_blank(last) : parse_number(last, y));
    // Half a point is no header.
    if (first && maybe_header && whole && numbers == 0 && (named || !is_y)) {
      if (chosen || reader->columns() == 2) continue;
      fail(ErrorKind::kData, "[data] ", reader->place(), " has the names of ", reader->columns(),
           " columns: name two of them in x_column and y_column.");
    }
    ++counts.read;
    if (!whole || numbers < features || !is_y) {
      const std::string problem = concat(reader->place(), " must be ", wanted, ", got ",
                                         what_is_odd(*reader, values, whole, two));
      if (first_odd.empty()) first_odd = problem;
      const bool other_file = first && two && reader->columns() > 2;
      if (other_file || (points.size() == before && ++odd == RecordReader::kMostOdd)) fail_odd();
      counts.drop(Drop::kMalformed, problem);
      continue;
    }
    ++counts.kept;
    points.x.insert(points.x.end(), x.begin(), x.end());
    points.y.push_back(y);
    if (named) read.names.push_back(last);
  }
  if (points.size() == before && !first_odd.empty()) fail_odd();
  if (points.size() == before) fail(ErrorKind::kData, "[data] ", file.path, " has no point.");
  return points.size() - before;
}

void read_points(const CorpusSpec& spec, NamedPoints& read) {
  check_points(spec);
  read.counts.emplace_back().corpus = spec.str();
  for_each_shard(spec, [&](const CorpusSpec& shard) { return read_shard(shard, read); });
}

}  // namespace

std::string Points::csv() const {
  std::string text;
  for (int64_t f = 0; f < features; ++f) {
    text += features == 1 ? "x," : concat('x', f + 1, ',');
  }
  text += classes.empty() ? "y\n" : "class\n";
  for (size_t i = 0; i < y.size(); ++i) {
    for (int64_t f = 0; f < features; ++f) {
      append_number(text, x[i * static_cast<size_t>(features) + static_cast<size_t>(f)]);
      text += ',';
    }
    if (classes.empty()) {
      append_number(text, y[i]);
    } else {
      text += quoted(classes[static_cast<size_t>(y[i])]);
    }
    text += '\n';
  }
  return text;
}

CorpusSpec Points::columns(const std::string& path) const {
  CorpusSpec spec;
  spec.records = {path, &kCsv};
  if (features == 1 && classes.empty()) return spec;
  for (int64_t f = 1; f <= features; ++f) spec.x_columns.push_back(std::to_string(f));
  (classes.empty() ? spec.y_column : spec.class_column) = std::to_string(features + 1);
  return spec;
}

Points load_points(const std::vector<CorpusSpec>& specs, const std::vector<std::string>& classes) {
  check_not_empty(specs);
  NamedPoints read;
  for (const CorpusSpec& spec : specs) {
    const CorpusSpec& first = specs.front();
    if (spec.features().size() != first.features().size() ||
        spec.class_column.empty() != first.class_column.empty()) {
      fail(ErrorKind::kConfig, "[data] ", spec.str(), " must have as many columns of x as ",
           first.str(), ", and a class where that has one.");
    }
    read_points(spec, read);
  }
  Points points = std::move(read.points);
  points.counts = FilterCounts::of_all(std::move(read.counts));
  points.features = static_cast<int64_t>(specs.front().features().size());
  if (read.names.empty()) return points;
  points.classes = classes;
  if (classes.empty()) {
    const std::set<std::string> all(read.names.begin(), read.names.end());
    points.classes.assign(all.begin(), all.end());
  }
  for (size_t i = 0; i < read.names.size(); ++i) {
    const auto found = std::ranges::find(points.classes, read.names[i]);
    if (found == points.classes.end()) {
      fail(ErrorKind::kData, "[data] ", specs.front().str(), " has the class '", read.names[i],
           "', of which the training data have no point; their classes are ",
           join(points.classes, ", "), '.');
    }
    points.y[i] = static_cast<double>(found - points.classes.begin());
  }
  return points;
}

PointBatch rows_of(const PointBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  return {.indices = rows(batch.indices), .rows = rows.count()};
}

PointBatches::PointBatches(const Points& points, const BatchOptions& options, DataPosition start)
    : walk_(EpochPlans::of_equal_rows({.rows = [count = points.size()](int64_t) { return count; },
                                       .batch_size = options.batch_size,
                                       .shuffle = options.shuffle,
                                       .seed = options.seed}),
            start) {}

PointBatch PointBatches::next() {
  const auto points = walk_.next();
  return {.indices = {points.begin(), points.end()}, .rows = std::ssize(points)};
}

}  // namespace tapestry
