#include "data/corpus.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "data/records.h"

namespace tapestry {
namespace {

// The parts of a corpus that are given, and what it may be a part of.
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

// Two columns of one file.
void validate_columns(const OptionReport& report, const char* first, int64_t a, const char* second,
                      int64_t b) {
  report.expect(a >= 1, first, "must be at least 1, got ", a, '.');
  report.expect(b >= 1, second, "must be at least 1, got ", b, '.');
  report.expect(a != b, second, "must differ from ", first, ", got ", b, " twice.");
}

// A template of records; those of a TSV have numbers for names.
void validate_template(const OptionReport& report, const char* member, const std::string& text,
                       bool columns) {
  const std::string problem = Template::problem_of(text);
  if (!report.expect(problem.empty(), member, problem) || !columns) return;
  const Template parsed(text);
  for (const std::string& field : parsed.fields()) {
    const bool number = field.find_first_not_of("0123456789") == std::string::npos &&
                        field.find_first_not_of('0') == 0;
    report.expect(number, member, "must name the columns of a tsv by their numbers, such as {1}, ",
                  "got {", field, "}.");
  }
}

}  // namespace

CorpusSpec::Kind CorpusSpec::kind() const {
  const OptionReport report = OptionReport::throwing("data");
  const bool parallel = !source.empty() || !target.empty();
  report.expect(
      parallel + !tsv.empty() + !ding.empty() + !text.empty() + !images.empty() + !jsonl.empty() +
              !squad.empty() + !csv.empty() ==
          1,
      "",
      "a corpus must have exactly one of source and target, tsv, ding, text, images, jsonl, squad, "
      "csv, got ",
      str().empty() ? "none" : str(), '.');
  report.expect(!parallel || (!source.empty() && !target.empty()), "",
                "a corpus must have source and target, got only ",
                source.empty() ? "target " : "source ", str(), '.');
  const bool labelled = label_column != 0 || text_column != 0;
  const bool prompted = !prompt.empty() || !answer.empty();
  return parallel         ? Kind::kParallel
         : !tsv.empty()   ? prompted   ? Kind::kPrompted
                            : labelled ? Kind::kLabelled
                                       : Kind::kTsv
         : !ding.empty()  ? Kind::kDing
         : !text.empty()  ? Kind::kText
         : !jsonl.empty() ? prompted ? Kind::kPrompted : Kind::kQuestions
         : !squad.empty() ? Kind::kQuestions
         : !csv.empty()   ? Kind::kPoints
                          : Kind::kImages;
}

bool CorpusSpec::has_target() const {
  const Kind it = kind();
  return it == Kind::kParallel || it == Kind::kTsv || it == Kind::kDing;
}

void CorpusSpec::validate(const OptionReport& report) const {
  const Kind it = kind();
  if (it == Kind::kLabelled) {
    validate_columns(report, "label_column", label_column, "text_column", text_column);
  }
  report.expect(it == Kind::kLabelled || (label_column == 0 && text_column == 0), "label_column",
                "and text_column need tsv, got ", str(), '.');
  if (it == Kind::kPrompted) {
    validate_template(report, "prompt", prompt, !tsv.empty());
    validate_template(report, "answer", answer, !tsv.empty());
  }
  report.expect(it == Kind::kPrompted || (prompt.empty() && answer.empty()), "prompt",
                "and answer need jsonl or tsv, got ", str(), '.');
  report.expect(labels.empty() || it == Kind::kImages, "labels", "need images, got ", str(), '.');
  report.expect_one_of("documents", documents, kDocuments);
  report.expect(documents == "lines" || it == Kind::kText, "documents",
                "applies only to text, got ", documents, " with ", str(), '.');
  validate_part(*this, report);
  validate_columns(report, "source_column", source_column, "target_column", target_column);
  report.expect_one_of("direction", direction, kDirections);
  report.expect_one_of("split", split, kSplits);
  report.expect(limit >= 0, "limit", "must be 0 (none) or more, got ", limit, '.');
}

std::string CorpusSpec::str() const {
  std::vector<std::string> names;
  for (const std::string* name :
       {&source, &target, &tsv, &ding, &text, &images, &labels, &jsonl, &squad, &csv}) {
    if (!name->empty()) names.push_back(*name);
  }
  return join(names, ", ");
}

}  // namespace tapestry
