// One reader for each kind of corpus, all behind open_corpus().
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "core/base/error.h"
#include "data/corpora/class_names.h"
#include "data/corpora/corpus.h"
#include "data/corpora/ding.h"
#include "data/corpora/filtering_reader.h"
#include "data/corpora/records/chat_reader.h"
#include "data/corpora/records/records.h"
#include "data/corpora/records/squad.h"
#include "data/corpora/records/tagged_reader.h"
#include "data/corpora/shards.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

class ParallelReader : public FilteringReader {
 public:
  explicit ParallelReader(const CorpusSpec& spec)
      : FilteringReader(spec), source_(spec.source), target_(spec.target) {
    if (!spec.pair_weights.empty()) weights_.emplace(spec.pair_weights);
    if (!spec.alignments.empty()) alignments_.emplace(spec.alignments);
  }

 protected:
  bool fetch(TextPair& pair) override {
    const bool source = source_.next(pair.source);
    const bool target = target_.next(pair.target);
    if (source != target || (weights_ && weights_->next(weight_) != source)) fail_lengths();
    pair.place = target_.place();
    if (!alignments_) return source;
    if (alignments_->next(line_) != source) fail_lengths();
    pair.links.clear();
    if (source) {
      pair.links = parse_word_links(line_, pair.source, pair.target, alignments_->place());
    }
    return source;
  }

 private:
  [[noreturn]] void fail_lengths() {
    const auto length_of = [](LineReader& lines) {
      for (std::string line; lines.next(line);) {
      }
      return concat(lines.path(), " has ", lines.line_number());
    };
    fail(ErrorKind::kData, "[data] ", length_of(source_), " lines, ", length_of(target_),
         weights_ ? concat(", ", length_of(*weights_)) : "",
         alignments_ ? concat(", ", length_of(*alignments_)) : "", '.');
  }

  LineReader source_;
  LineReader target_;
  std::optional<LineReader> weights_;
  std::optional<LineReader> alignments_;
  std::string line_;
};

class TextReader : public FilteringReader {
 public:
  explicit TextReader(const CorpusSpec& spec) : FilteringReader(spec), lines_(spec.text) {}

 protected:
  bool fetch(TextPair& pair) override {
    pair.target.clear();
    if (spec_.documents == "file") return fetch_file(pair);
    if (spec_.documents == "fortunes") {
      return fetch_group(pair, [](const std::string& line) { return line == "%"; });
    }
    if (spec_.documents == "paragraphs") {
      return fetch_group(pair, [](const std::string& line) { return is_blank(line); });
    }
    if (!lines_.next(pair.source)) return false;
    pair.place = lines_.place();
    return true;
  }

 private:
  // Gets the lines up to the next separator; successive separators count as one.
  template <class IsSeparator>
  bool fetch_group(TextPair& pair, IsSeparator&& is_separator) {
    bool any = false;
    while (lines_.next(line_)) {
      if (is_separator(line_)) {
        if (any) return true;
        continue;
      }
      if (!any) {
        pair.source = line_;
        pair.place = lines_.place();
      } else {
        pair.source += '\n';
        pair.source += line_;
      }
      any = true;
    }
    return any;
  }

  // The file is one document, so invalid text is an error, not a dropped line.
  bool fetch_file(TextPair& pair) {
    pair.source.clear();
    while (lines_.next(line_)) {
      if (lines_.line_number() == 1) pair.place = lines_.place();
      const size_t invalid = find_invalid_utf8(line_);
      const size_t nul = line_.find('\0');
      if (invalid != std::string::npos || nul != std::string::npos) {
        fail(ErrorKind::kData, "[data] ", lines_.place(), " has ",
             invalid < nul ? "ill-formed UTF-8" : "a NUL byte", " at byte ",
             std::min(invalid, nul) + 1, " of the line, expected text.");
      }
      pair.source += line_;
      if (lines_.has_line_end()) pair.source += '\n';
    }
    if (pair.source.empty()) return false;
    if (spec_.range_begin > 0 || spec_.range_end < 1) {
      pair.source = cut_range(pair.source, spec_.range_begin, spec_.range_end);
    }
    return true;
  }

  static std::string cut_range(const std::string& text, double begin, double end) {
    const int64_t all = count_code_points(text);
    const auto characters = static_cast<double>(all);
    const auto first = static_cast<int64_t>(std::floor(characters * begin));
    const auto last = static_cast<int64_t>(std::floor(characters * end));
    size_t at = 0;
    for (int64_t i = 0; i < first; ++i) next_code_point(text, at);
    const size_t from = at;
    for (int64_t i = first; i < last; ++i) next_code_point(text, at);
    return text.substr(from, at - from);
  }

  LineReader lines_;
  std::string line_;
};

// Texts of records, with or without something beside them: pairs, and texts with a label.
class RecordPairReader : public FilteringReader {
 public:
  RecordPairReader(const CorpusSpec& spec, std::vector<RecordField> fields)
      : FilteringReader(spec), records_(open_records(spec.records, fields)) {}

  /// Two texts of a record, or a text and its label, with what stands beside them.
  static std::unique_ptr<RecordPairReader> of_two(const CorpusSpec& spec, const std::string& first,
                                                  const std::string& second) {
    std::vector<RecordField> fields = {{first}, {.name = second, .or_list = spec.label_lists}};
    for (const std::string* column : beside(spec)) {
      if (!column->empty()) fields.push_back({*column});
    }
    return std::make_unique<RecordPairReader>(spec, std::move(fields));
  }

 protected:
  bool fetch(TextPair& pair) final {
    while (true) {
      const RecordReader::Row row = records_->next(values_);
      if (row == RecordReader::Row::kEnd) return false;
      pair.place = records_->place();
      if (row == RecordReader::Row::kWhole) {
        take(values_.texts, pair);
        return true;
      }
      ++counts_.read;
      drop(drop_of(row), records_->place_and_reason());
    }
  }

  bool drops_kind(const TextPair& pair) override {
    if (spec_.kind() != CorpusSpec::Kind::kLabelled) return false;
    const std::string problem = label_problem(pair.target);
    if (!problem.empty()) drop(Drop::kMalformed, concat(pair.place, ": ", problem));
    return !problem.empty();
  }

  // The texts are in the order of the fields, and are not needed any more.
  virtual void take(std::vector<std::string>& texts, TextPair& pair) {
    std::swap(pair.source, texts[0]);
    pair.target.clear();
    if (texts.size() > 1) std::swap(pair.target, texts[1]);
    size_t next = 2;
    std::string* const into[] = {&weight_, &pair.second, &pair.rejected, &score_};
    for (size_t i = 0; const std::string* column : beside(spec_)) {
      if (!column->empty()) std::swap(*into[i], texts[next++]);
      ++i;
    }
  }

 private:
  static std::array<const std::string*, 4> beside(const CorpusSpec& spec) {
    return {&spec.pair_weight_column, &spec.text_pair_column, &spec.negative_column,
            &spec.score_column};
  }
  // "" if nothing is wrong with it.
  std::string label_problem(const std::string& label) const {
    double number = 0;
    if (spec_.label_numbers) {
      const bool is_number =
          parse_number(label, number) && std::isfinite(static_cast<float>(number));
      return is_number ? "" : concat("must have numbers for labels, got '", label, '\'');
    }
    if (!spec_.label_lists || names_in_label(label)) return "";
    return concat("must have names with commas between them, or -, for labels, got '", label, '\'');
  }

  std::unique_ptr<RecordReader> records_;
  RecordValues values_;
};

// The fields of templates, each once.
std::vector<RecordField> fields_of(const std::vector<Template>& texts) {
  std::vector<RecordField> fields;
  for (const Template& text : texts) {
    for (const std::string& name : text.fields()) {
      if (std::ranges::find(fields, name, &RecordField::name) == fields.end()) {
        fields.push_back({name});
      }
    }
  }
  return fields;
}

// Prompts and answers, by the templates of the spec.
class PromptReader : public RecordPairReader {
 public:
  // `answers`: one, or a better and a worse one.
  PromptReader(const CorpusSpec& spec, const std::vector<std::string>& answers)
      : PromptReader(spec, templates_of(spec.prompt, answers)) {}

 protected:
  void take(std::vector<std::string>& texts, TextPair& pair) override {
    const auto text_of = [&](const std::string& name) -> const std::string& {
      const auto found = std::ranges::find(fields_, name, &RecordField::name);
      return texts[static_cast<size_t>(found - fields_.begin())];
    };
    pair.source = templates_[0].fill_with(text_of);
    pair.target = templates_[1].fill_with(text_of);
    if (templates_.size() > 2) pair.rejected = templates_[2].fill_with(text_of);
  }

 private:
  PromptReader(const CorpusSpec& spec, std::vector<Template> templates)
      : RecordPairReader(spec, fields_of(templates)),
        fields_(fields_of(templates)),
        templates_(std::move(templates)) {}

  static std::vector<Template> templates_of(const std::string& prompt,
                                            const std::vector<std::string>& answers) {
    std::vector<Template> templates = {Template(prompt)};
    for (const std::string& answer : answers) templates.emplace_back(answer);
    return templates;
  }

  const std::vector<RecordField> fields_;
  const std::vector<Template> templates_;
};

class DingReader : public FilteringReader {
 public:
  explicit DingReader(const CorpusSpec& spec) : FilteringReader(spec), lines_(spec.ding) {}

 protected:
  bool fetch(TextPair& pair) override {
    while (next_ == phrases_.size()) {
      if (!read_line()) return false;
    }
    auto& [german, english] = phrases_[next_++];
    const bool to_english = spec_.direction == "de-en";
    pair.source = std::move(to_english ? german : english);
    pair.target = std::move(to_english ? english : german);
    pair.place = lines_.place();
    return true;
  }

  bool drops_kind(const TextPair& pair) override {
    if (std::min(words_of(pair.source), words_of(pair.target)) < spec_.min_words) {
      drop(Drop::kTooShort, pair.place);
      return true;
    }
    // 64 bits for about 10^5 phrases: the probability of a false duplicate is about 10^-9.
    const std::string both = pair.source + '\n' + pair.target;
    if (!seen_.insert(XXH3_64bits(both.data(), both.size())).second) {
      drop(Drop::kDuplicate, pair.place);
      return true;
    }
    return false;
  }

 private:
  // The parser leaves one space between two words.
  static int64_t words_of(const std::string& text) { return 1 + std::ranges::count(text, ' '); }
  bool read_line() {
    if (!lines_.next(line_)) return false;
    phrases_.clear();
    next_ = 0;
    if (line_.starts_with('#')) return true;
    Drop reason{};
    if (is_blank(line_)) {
      reason = Drop::kEmpty;
    } else if (parse_ding_line(line_, phrases_, reason)) {
      return true;
    }
    ++counts_.read;
    drop(reason, lines_.place());
    return true;
  }

  LineReader lines_;
  std::string line_;
  std::vector<std::pair<std::string, std::string>> phrases_;
  size_t next_ = 0;
  std::unordered_set<uint64_t> seen_;
};

std::unique_ptr<PairReader> open_kind(const CorpusSpec& spec) {
  switch (spec.kind()) {
    case CorpusSpec::Kind::kParallel:
      return std::make_unique<ParallelReader>(spec);
    case CorpusSpec::Kind::kPairs:
      return RecordPairReader::of_two(spec, spec.source_column, spec.target_column);
    case CorpusSpec::Kind::kLabelled:
      return RecordPairReader::of_two(spec, spec.text_column, spec.label_column);
    case CorpusSpec::Kind::kDing:
      return std::make_unique<DingReader>(spec);
    case CorpusSpec::Kind::kText:
      if (spec.text.empty()) {
        return std::make_unique<RecordPairReader>(spec,
                                                  std::vector<RecordField>{{spec.text_column}});
      }
      return std::make_unique<TextReader>(spec);
    case CorpusSpec::Kind::kPrompted:
      return std::make_unique<PromptReader>(spec, std::vector{spec.answer});
    case CorpusSpec::Kind::kTalks:
      return open_talks(spec);
    case CorpusSpec::Kind::kPreferences:
      if (spec.compares_talks()) return open_talks(spec);
      return std::make_unique<PromptReader>(spec, std::vector{spec.chosen, spec.rejected});
    case CorpusSpec::Kind::kQuestions:
      return open_question_texts(spec);
    case CorpusSpec::Kind::kTagged:
      return open_tagged(spec);
    case CorpusSpec::Kind::kImages:
      fail(ErrorKind::kConfig, "[data] expected a corpus of texts, got images ", spec.str(), '.');
    case CorpusSpec::Kind::kPoints:
      fail(ErrorKind::kConfig, "[data] expected a corpus of texts, got points ", spec.str(), '.');
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<PairReader> open_corpus(const CorpusSpec& given, std::shared_ptr<SeenTexts> seen) {
  given.validate();
  CorpusSpec spec = given;
  spec.settle_columns(spec.kind());
  if (seen == nullptr) seen = std::make_shared<SeenTexts>();
  const OpenShard open = [seen](const CorpusSpec& shard) {
    std::unique_ptr<PairReader> reader = open_kind(shard);
    // All readers of pairs are filtering ones.
    if (shard.clean.is_on() && shard.has_target()) {
      static_cast<FilteringReader&>(*reader).clean(seen);
    }
    return reader;
  };
  std::vector<CorpusSpec> shards = shards_of(spec);
  return shards.size() == 1 ? open(shards.front()) : chain_shards(std::move(shards), open);
}

}  // namespace tapestry
