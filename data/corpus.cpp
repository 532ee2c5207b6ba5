#include "data/corpus.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tapestry {
namespace {

[[noreturn]] void fail_config(const std::string& what) {
  fail(ErrorKind::kConfig, "[data] ", what);
}

void validate_documents(const CorpusSpec& spec) {
  const std::string& documents = spec.documents;
  const std::array<const char*, 4> known = {"lines", "paragraphs", "fortunes", "file"};
  if (std::find(known.begin(), known.end(), documents) == known.end()) {
    fail_config(concat("documents must be one of lines, paragraphs, fortunes, file, got '",
                       documents, "'."));
  }
  if (documents != "lines" && spec.kind() != CorpusSpec::Kind::kText) {
    fail_config(concat("documents ", documents, " applies only to text, got ", spec.str(), '.'));
  }
  if (!(spec.range_begin >= 0 && spec.range_begin < spec.range_end && spec.range_end <= 1)) {
    fail_config(concat("expected 0 <= range_begin < range_end <= 1, got ", spec.range_begin,
                       " and ", spec.range_end, '.'));
  }
  const bool whole = spec.range_begin == 0 && spec.range_end == 1;
  const bool images = spec.kind() == CorpusSpec::Kind::kImages;
  if (!whole && documents != "file" && !images) {
    fail_config(concat("a range needs documents file, got ", documents,
                       "; use split for parts of many documents."));
  }
  if (images && spec.split != "all") {
    fail_config(concat("split applies only to texts, got ", spec.split,
                       " for images; use range_begin and range_end."));
  }
  if (spec.split != "all" && documents == "file") {
    fail_config(concat("split needs many documents, got ", spec.split,
                       " with documents file; use range_begin and range_end."));
  }
}

}  // namespace

CorpusSpec::Kind CorpusSpec::kind() const {
  const bool parallel = !source.empty() || !target.empty();
  if (parallel + !tsv.empty() + !ding.empty() + !text.empty() + !images.empty() != 1) {
    fail_config(
        "a corpus must have exactly one of source and target, tsv, ding, text, images, got " +
        (str().empty() ? "none" : str()) + '.');
  }
  if (parallel && (source.empty() || target.empty())) {
    fail_config(concat("a corpus must have source and target, got only ",
                       source.empty() ? "target " : "source ", str(), '.'));
  }
  const bool labelled = label_column != 0 || text_column != 0;
  return parallel        ? Kind::kParallel
         : !tsv.empty()  ? labelled ? Kind::kLabelled : Kind::kTsv
         : !ding.empty() ? Kind::kDing
         : !text.empty() ? Kind::kText
                         : Kind::kImages;
}

bool CorpusSpec::has_target() const {
  const Kind it = kind();
  return it == Kind::kParallel || it == Kind::kTsv || it == Kind::kDing;
}

void CorpusSpec::validate() const {
  const bool labelled = kind() == Kind::kLabelled;
  if (labelled && (label_column < 1 || text_column < 1 || label_column == text_column)) {
    fail_config(concat("label_column and text_column must be different numbers >= 1, got ",
                       label_column, " and ", text_column, '.'));
  }
  if (!labelled && (label_column != 0 || text_column != 0)) {
    fail_config("label_column and text_column need tsv, got " + str() + '.');
  }
  if (!labels.empty() && kind() != Kind::kImages) {
    fail_config("labels need images, got " + str() + '.');
  }
  validate_documents(*this);
  if (source_column < 1 || target_column < 1 || source_column == target_column) {
    fail_config(concat("source_column and target_column must be different numbers >= 1, got ",
                       source_column, " and ", target_column, '.'));
  }
  if (direction != "de-en" && direction != "en-de") {
    fail_config(concat("direction must be de-en or en-de, got '", direction, "'."));
  }
  if (split != "all" && split != "train" && split != "valid" && split != "test") {
    fail_config(concat("split must be one of all, train, valid, test, got '", split, "'."));
  }
  if (limit < 0) fail_config(concat("limit must be 0 (none) or more, got ", limit, '.'));
}

std::string CorpusSpec::str() const {
  std::vector<std::string> names;
  for (const std::string* name : {&source, &target, &tsv, &ding, &text, &images, &labels}) {
    if (!name->empty()) names.push_back(*name);
  }
  return join(names, ", ");
}

const char* name_of(Drop reason) {
  static constexpr const char* kNames[kDropReasons] = {
      "invalid_utf8", "nul_byte",  "missing_column", "empty",    "overlong",
      "malformed",    "unaligned", "too_short",      "duplicate"};
  return kNames[static_cast<int>(reason)];
}

int64_t FilterCounts::total_dropped() const {
  int64_t total = 0;
  for (const int64_t count : dropped) total += count;
  return total;
}

void FilterCounts::drop(Drop reason, const std::string& place) {
  const auto i = static_cast<size_t>(reason);
  if (dropped[i]++ == 0) first[i] = place;
}

void FilterCounts::add(const FilterCounts& other) {
  read += other.read;
  kept += other.kept;
  truncated += other.truncated;
  other_split += other.other_split;
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i] == 0) first[i] = other.first[i];
    dropped[i] += other.dropped[i];
  }
}

std::string FilterCounts::summary() const {
  std::string text = concat(read, " read, ", kept, " kept");
  if (truncated > 0) text += concat(" (", truncated, " truncated)");
  if (other_split > 0) text += concat(", ", other_split, " in other splits");
  const char* separator = "; dropped: ";
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i] == 0) continue;
    text += concat(separator, dropped[i], ' ', name_of(static_cast<Drop>(i)), " (first ", first[i],
                   ')');
    separator = ", ";
  }
  return text;
}

}  // namespace tapestry
