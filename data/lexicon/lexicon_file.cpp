#include "data/lexicon/lexicon_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "data/files/text.h"

namespace tapestry {
namespace {

constexpr const char* kNull = "NULL";
constexpr const char* kSpace = " \t\n\v\f\r";
constexpr int32_t kNullSource = -1, kUnknown = -2;

class Pieces {
 public:
  explicit Pieces(const Tokenizer& tokenizer) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) ids_.emplace(tokenizer.piece(id), id);
  }
  int32_t id(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? kUnknown : found->second;
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

// The three fields of a line; false if it has more or fewer.
bool split_fields(std::string_view line, std::array<std::string_view, 3>& fields) {
  // find_first_of() calls a function for each character, and half a million lines are read.
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto end = line.end();
  auto at = line.begin();
  for (std::string_view& field : fields) {
    const auto begin = std::find_if_not(at, end, is_space);
    if (begin == end) return false;
    at = std::find_if(begin, end, is_space);
    field = {begin, at};
  }
  return std::all_of(at, end, is_space);
}

// Adds the lines to a lexicon one by one.
class LexiconReader {
 public:
  LexiconReader(const std::string& path, const TokenizerPair& tokenizers)
      : lines_(path),
        sources_(*tokenizers.source),
        targets_(*tokenizers.target),
        seen_(static_cast<size_t>(tokenizers.target->vocab_size())) {
    file_.lexicon.translations.resize(static_cast<size_t>(tokenizers.source->vocab_size()));
  }

  LexiconFile read() {
    for (std::string line; lines_.next(line);) {
      ++file_.lines;
      take(line);
    }
    if (file_.unknown == file_.lines) {
      fail(ErrorKind::kData, "[shortlist] ", lines_.path(), ": none of ", file_.lines,
           " lines has tokens of this model's vocabulary, the first is ", file_.first_unknown, '.');
    }
    for (size_t x = 0; x < file_.lexicon.translations.size(); ++x) {
      check_distinct(static_cast<int32_t>(x), file_.lexicon.translations[x]);
    }
    check_distinct(kNullSource, file_.lexicon.frequent);
    file_.lexicon.sort();
    return std::move(file_);
  }

 private:
  struct Line {
    std::array<std::string_view, 3> fields;  ///< target, source, probability
    float probability = 0;
  };

  void take(const std::string& text) {
    const Line line = parsed(lines_, text);
    const auto& [target_piece, source_piece, number] = line.fields;
    // The empty target is Marian's, for sources without a translation.
    if (target_piece == kNull) return;
    const int32_t target = targets_.id(target_piece), source = source_of(source_piece);
    if (target == kUnknown || source == kUnknown) {
      if (file_.unknown++ > 0) return;
      file_.first_unknown =
          concat(lines_.place(), ": '", target == kUnknown ? target_piece : source_piece, "'");
      return;
    }
    list_of(source).push_back({target, line.probability});
  }

  static Line parsed(const LineReader& lines, const std::string& text) {
    Line line;
    if (!split_fields(text, line.fields) || !is_probability(line.fields[2], line.probability)) {
      constexpr size_t kShown = 100;
      fail(ErrorKind::kData, "[shortlist] ", lines.place(),
           ": expected a target token, a source token and a probability in [0, 1], got '",
           text.substr(0, kShown), "'.");
    }
    return line;
  }

  // A source's lines usually stand together.
  int32_t source_of(std::string_view piece) {
    if (piece != last_source_) {
      last_source_ = piece;
      last_id_ = piece == kNull ? kNullSource : sources_.id(piece);
    }
    return last_id_;
  }

  std::vector<Lexicon::Translation>& list_of(int32_t source) {
    return source == kNullSource ? file_.lexicon.frequent
                                 : file_.lexicon.translations[static_cast<size_t>(source)];
  }

  // A pair that came twice is looked for in the file again, for its place.
  void check_distinct(int32_t source, const std::vector<Lexicon::Translation>& list) {
    ++round_;
    for (const Lexicon::Translation& one : list) {
      int32_t& seen = seen_[static_cast<size_t>(one.target)];
      if (std::exchange(seen, round_) == round_) refuse_second(source, one.target);
    }
  }

  [[noreturn]] void refuse_second(int32_t source, int32_t target) {
    LineReader lines(lines_.path());
    int64_t found = 0;
    for (std::string text; lines.next(text);) {
      const Line line = parsed(lines, text);
      if (targets_.id(line.fields[0]) != target || source_of(line.fields[1]) != source) continue;
      if (++found < 2) continue;
      fail(ErrorKind::kData, "[shortlist] ", lines.place(), ": '", line.fields[0], "' and '",
           line.fields[1], "' came before.");
    }
    fail(ErrorKind::kData, "[shortlist] ", lines_.path(), " has a pair of tokens twice.");
  }

  static bool is_probability(std::string_view text, float& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= 1;
  }

  LineReader lines_;
  Pieces sources_, targets_;
  LexiconFile file_;
  std::string last_source_ = kNull;
  int32_t last_id_ = kNullSource;
  std::vector<int32_t> seen_;  // the round of check_distinct() that last had a target
  int32_t round_ = 0;
};

// The pieces of a vocabulary that a file can hold; counts the others that are asked for.
class Writable {
 public:
  explicit Writable(const Tokenizer& tokenizer, int64_t& lost) : lost_(lost) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      std::string piece = tokenizer.piece(id);
      if (piece == kNull || piece.find_first_of(kSpace) != std::string::npos) piece.clear();
      pieces_.push_back(std::move(piece));
    }
  }
  // "" if there is none.
  const std::string& operator[](int32_t id) {
    const std::string& piece = pieces_.at(static_cast<size_t>(id));
    if (piece.empty() && lost_ids_.insert(id).second) ++lost_;
    return piece;
  }

 private:
  int64_t& lost_;
  std::set<int32_t> lost_ids_;
  std::vector<std::string> pieces_;
};

}  // namespace

LexiconFile read_lexicon(const std::string& path, const TokenizerPair& tokenizers) {
  LexiconFile file = LexiconReader(path, tokenizers).read();
  if (!file.lexicon.frequent.empty()) return file;
  const auto size = static_cast<int32_t>(tokenizers.target->vocab_size());
  for (int32_t id = 0; id < size; ++id) {
    if (!tokenizers.target->is_special(id)) file.lexicon.frequent.push_back({id, 0});
  }
  return file;
}

int64_t write_lexicon(const Lexicon& lexicon, const TokenizerPair& tokenizers, std::ostream& out) {
  int64_t lost = 0;
  Writable sources(*tokenizers.source, lost), targets(*tokenizers.target, lost);
  const auto write = [&](const std::string& source, const std::vector<Lexicon::Translation>& list) {
    for (const Lexicon::Translation& one : list) {
      const std::string& target = targets[one.target];
      if (target.empty()) continue;
      char number[32];
      const auto end = std::to_chars(number, number + sizeof number, one.probability).ptr;
      out << target << ' ' << source << ' ' << std::string_view(number, end) << '\n';
    }
  };
  write(kNull, lexicon.frequent);
  for (size_t x = 0; x < lexicon.translations.size(); ++x) {
    if (lexicon.translations[x].empty()) continue;
    const std::string& source = sources[static_cast<int32_t>(x)];
    if (!source.empty()) write(source, lexicon.translations[x]);
  }
  return lost;
}

int64_t write_vmap(const Shortlist& shortlist, const TokenizerPair& tokenizers, bool one_vocabulary,
                   std::ostream& out) {
  int64_t lost = 0;
  Writable sources(*tokenizers.source, lost), targets(*tokenizers.target, lost);
  const auto write = [&](const std::string& source, std::span<const int32_t> tokens) {
    std::string list;
    for (const int32_t token : tokens) {
      const std::string& target = targets[token];
      if (!target.empty()) list += (list.empty() ? "" : " ") + target;
    }
    if (!list.empty()) out << source << '\t' << list << '\n';
  };
  write("", shortlist.common());
  for (int32_t x = 0; x < shortlist.source_tokens(); ++x) {
    const std::span<const int32_t> found = shortlist.translations(x);
    std::vector<int32_t> tokens(found.begin(), found.end());
    const bool copied = one_vocabulary && !tokenizers.source->is_special(x);
    if (copied && std::ranges::find(tokens, x) == tokens.end()) tokens.push_back(x);
    if (tokens.empty()) continue;
    if (const std::string& source = sources[x]; !source.empty()) write(source, tokens);
  }
  return lost;
}

}  // namespace tapestry
