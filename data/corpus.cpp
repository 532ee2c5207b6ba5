#include "data/corpus.h"

#include <xxhash.h>

#include <unordered_set>

#include "core/error.h"
#include "data/ding.h"
#include "data/text.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

[[noreturn]] void fail_config(const std::string& what) {
  fail(ErrorKind::kConfig, "[data] ", what);
}

// What every kind of corpus shares: checks of the text, the split and the limit.
class FilteringReader : public PairReader {
 public:
  explicit FilteringReader(const CorpusSpec& spec) : spec_(spec) {}

  bool next(TextPair& pair) final {
    while (spec_.limit == 0 || counts_.kept < spec_.limit) {
      if (!fetch(pair)) return false;
      ++counts_.read;
      if (drops(pair)) continue;
      if (!in_split(pair.source)) {
        ++counts_.other_split;
        continue;
      }
      ++counts_.kept;
      return true;
    }
    return false;
  }

 protected:
  // The next pair as it stands in the file. Subclasses count what they drop themselves, as read
  // too.
  virtual bool fetch(TextPair& pair) = 0;
  virtual bool drops_kind(const TextPair&) { return false; }

  void drop(Drop reason, const std::string& place) { counts_.drop(reason, place); }

  const CorpusSpec spec_;

 private:
  bool drops(const TextPair& pair) {
    const bool both = spec_.kind() != CorpusSpec::Kind::kText;
    const auto any = [&](auto&& test) { return test(pair.source) || (both && test(pair.target)); };
    const auto is_invalid = [](const std::string& text) {
      return find_invalid_utf8(text) != std::string::npos;
    };
    const auto has_nul = [](const std::string& text) {
      return text.find('\0') != std::string::npos;
    };
    if (any(is_invalid)) {
      drop(Drop::kInvalidUtf8, pair.place);
    } else if (any(has_nul)) {
      drop(Drop::kNulByte, pair.place);
    } else if (any([](const std::string& text) { return is_blank(text); })) {
      drop(Drop::kEmpty, pair.place);
    } else {
      return drops_kind(pair);
    }
    return true;
  }

  bool in_split(const std::string& source) const {
    if (spec_.split == "all") return true;
    const uint64_t hundredth = XXH3_64bits(source.data(), source.size()) % 100;
    return spec_.split == (hundredth == 0 ? "test" : hundredth == 1 ? "valid" : "train");
  }
};

class ParallelReader : public FilteringReader {
 public:
  explicit ParallelReader(const CorpusSpec& spec)
      : FilteringReader(spec), source_(spec.source), target_(spec.target) {}

 protected:
  bool fetch(TextPair& pair) override {
    const bool source = source_.next(pair.source);
    const bool target = target_.next(pair.target);
    if (source != target) fail_lengths();
    pair.place = target_.place();
    return source;
  }

 private:
  [[noreturn]] void fail_lengths() {
    std::string line;
    while (source_.next(line)) {
    }
    while (target_.next(line)) {
    }
    fail(ErrorKind::kData, "[data] ", source_.path(), " has ", source_.line_number(), " lines, ",
         target_.path(), " has ", target_.line_number(), '.');
  }

  LineReader source_;
  LineReader target_;
};

class TextReader : public FilteringReader {
 public:
  explicit TextReader(const CorpusSpec& spec) : FilteringReader(spec), lines_(spec.text) {}

 protected:
  bool fetch(TextPair& pair) override {
    pair.target.clear();
    if (!lines_.next(pair.source)) return false;
    pair.place = lines_.place();
    return true;
  }

 private:
  LineReader lines_;
};

class TsvReader : public FilteringReader {
 public:
  explicit TsvReader(const CorpusSpec& spec) : FilteringReader(spec), lines_(spec.tsv) {}

 protected:
  bool fetch(TextPair& pair) override {
    while (lines_.next(line_)) {
      pair.place = lines_.place();
      if (column(spec_.source_column, pair.source) && column(spec_.target_column, pair.target)) {
        return true;
      }
      ++counts_.read;
      drop(is_blank(line_) ? Drop::kEmpty : Drop::kMissingColumn, pair.place);
    }
    return false;
  }

 private:
  // TSV has no quoting: a tab always separates.
  bool column(int64_t number, std::string& out) const {
    size_t begin = 0;
    for (int64_t i = 1; i < number; ++i) {
      const size_t tab = line_.find('\t', begin);
      if (tab == std::string::npos) return false;
      begin = tab + 1;
    }
    out = line_.substr(begin, line_.find('\t', begin) - begin);
    return true;
  }

  LineReader lines_;
  std::string line_;
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
    if (pair.source.find(' ') == std::string::npos || pair.target.find(' ') == std::string::npos) {
      drop(Drop::kTooShort, pair.place);
      return true;
    }
    // 64 bits over some 10^5 phrases: a false duplicate has a chance of 10^-9.
    const std::string both = pair.source + '\n' + pair.target;
    if (!seen_.insert(XXH3_64bits(both.data(), both.size())).second) {
      drop(Drop::kDuplicate, pair.place);
      return true;
    }
    return false;
  }

 private:
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

}  // namespace

CorpusSpec::Kind CorpusSpec::kind() const {
  const bool parallel = !source.empty() || !target.empty();
  if (parallel + !tsv.empty() + !ding.empty() + !text.empty() != 1) {
    fail_config("a corpus has exactly one of source and target, tsv, ding, text, got " +
                (str().empty() ? "none" : str()) + '.');
  }
  if (parallel && (source.empty() || target.empty())) {
    fail_config(concat("a corpus has source and target, got only ",
                       source.empty() ? "target " : "source ", str(), '.'));
  }
  return parallel        ? Kind::kParallel
         : !tsv.empty()  ? Kind::kTsv
         : !ding.empty() ? Kind::kDing
                         : Kind::kText;
}

void CorpusSpec::validate() const {
  kind();
  if (source_column < 1 || target_column < 1 || source_column == target_column) {
    fail_config(concat("source_column and target_column are different numbers from 1, got ",
                       source_column, " and ", target_column, '.'));
  }
  if (direction != "de-en" && direction != "en-de") {
    fail_config(concat("direction is de-en or en-de, got '", direction, "'."));
  }
  if (split != "all" && split != "train" && split != "valid" && split != "test") {
    fail_config(concat("split is one of all, train, valid, test, got '", split, "'."));
  }
  if (limit < 0) fail_config(concat("limit is 0 (none) or more, got ", limit, '.'));
}

std::string CorpusSpec::str() const {
  std::string names;
  for (const std::string* name : {&source, &target, &tsv, &ding, &text}) {
    if (!name->empty()) names += (names.empty() ? "" : ", ") + *name;
  }
  return names;
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

std::unique_ptr<PairReader> open_corpus(const CorpusSpec& spec) {
  spec.validate();
  switch (spec.kind()) {
    case CorpusSpec::Kind::kParallel:
      return std::make_unique<ParallelReader>(spec);
    case CorpusSpec::Kind::kTsv:
      return std::make_unique<TsvReader>(spec);
    case CorpusSpec::Kind::kDing:
      return std::make_unique<DingReader>(spec);
    case CorpusSpec::Kind::kText:
      return std::make_unique<TextReader>(spec);
  }
  return nullptr;
}

}  // namespace tapestry
