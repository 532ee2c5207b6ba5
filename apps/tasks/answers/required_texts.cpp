#include "apps/tasks/answers/required_texts.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// Chinese, Japanese, Thai, Lao, Khmer and Burmese put no spaces between words.
bool is_of_spaced_word(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kUnspaced[] = {
      {0x0E00, 0x0EFF}, {0x1000, 0x109F}, {0x1780, 0x17FF}, {0x2E80, 0x312F},
      {0x31A0, 0x31FF}, {0x3400, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x3FFFF}};
  return is_word_character(c) && std::ranges::none_of(kUnspaced, [c](const auto& range) {
           return range.first <= c && c <= range.second;
         });
}

// The kinds that the lines alone decide.
std::vector<std::string> kinds_of_texts(std::vector<std::string> kinds) {
  std::erase(kinds, RequiredTextOptions::kSymbols);
  return kinds;
}

}  // namespace

TokenEdges token_edges(const Tokenizer& tokenizer) {
  TokenEdges edges;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::u32string text =
        tokenizer.is_special(id) ? std::u32string() : decode_utf8(tokenizer.decode({id}));
    const bool begins = !text.empty() && is_of_spaced_word(text.front());
    edges.continues_word.push_back(begins && !tokenizer.starts_word(id));
    edges.ends_in_word.push_back(!text.empty() && is_of_spaced_word(text.back()));
  }
  return edges;
}

RequiredTexts::RequiredTexts(const RequiredTextOptions& options, const Translator& models,
                             const SearchOptions& search)
    : options_(options), models_(models), kept_(kinds_of_texts(options.keep)) {
  if (!options.is_on()) return;
  if (any() && (search.do_sample || search.mbr_samples > 0)) {
    fail(ErrorKind::kConfig, "[translate] --terms and --keep need a search, ",
         search.mbr_samples > 0 ? "--mbr" : "--do-sample", " draws tokens.");
  }
  if (any()) edges_ = token_edges(*models.tokenizers().target);
  const bool symbols = std::ranges::count(options.keep, RequiredTextOptions::kSymbols) > 0;
  const Tokenizer& source = *models.tokenizers().source;
  if (symbols && source.symbols().empty()) {
    fail(
        ErrorKind::kConfig,
        "[translate] --keep symbols needs a model with tokenizer.user_symbols, this one has none.");
  }
  for (size_t i = 0; symbols && i < source.symbols().size(); ++i) {
    symbols_.push_back(source.piece(source.symbols()[i]));
  }
  if (!options.terms.empty()) load_terms();
  if (options.annotates()) check_marks();
}

void RequiredTexts::load_terms() {
  terms_ = Terms(options_.terms);
  if (options_.annotates()) return;
  for (const Terms::Entry& entry : terms_.entries()) {
    if (!phrase_of(entry.target, true).empty()) continue;
    fail(ErrorKind::kData, "[terms] ", options_.terms, ":", entry.line,
         ": expected a translation that the model can write, got '", entry.target,
         "', of which its vocabulary lacks a part.");
  }
}

void RequiredTexts::check_marks() const {
  const Tokenizer& tokenizer = *models_.tokenizers().source;
  for (const char* mark : kTermMarks) {
    const bool known = std::ranges::any_of(tokenizer.symbols(),
                                           [&](int32_t id) { return tokenizer.piece(id) == mark; });
    if (known) continue;
    fail(ErrorKind::kConfig, "[translate] --terms-mode soft needs a model that learnt ",
         join(kTermMarks, " "), " as tokenizer.user_symbols; this one has no ", mark, '.');
  }
}

// The tokens must give the text again: a tokenizer may normalise, or know a part of it only as
// unknown.
std::vector<int32_t> RequiredTexts::phrase_of(const std::string& text, bool begins_word) const {
  const Tokenizer& tokenizer = *models_.tokenizers().target;
  std::vector<int32_t> ids = tokenizer.encode_continuation(begins_word ? " " + text : text);
  if (models_.never_written(ids) != ids.end()) return {};
  return strip(tokenizer.decode(ids)) == text ? ids : std::vector<int32_t>();
}

// Terms are first, then what users made symbols.
std::vector<RequiredText> RequiredTexts::find(std::string_view line) const {
  std::vector<RequiredText> found;
  if (!options_.annotates()) found = terms_.find(line);
  for (const std::string& symbol : symbols_) {
    for (size_t at = 0; (at = line.find(symbol, at)) != line.npos; at += symbol.size()) {
      found.push_back({at, at + symbol.size(), symbol});
    }
  }
  for (RequiredText& text : kept_.find(line)) found.push_back(std::move(text));
  return without_overlaps(std::move(found));
}

std::string RequiredTexts::source(const std::string& line) const {
  return options_.annotates() ? annotated(line, terms_.find(line)) : line;
}

void RequiredTexts::add(std::string_view line, int64_t number, Sentences& sentences) {
  if (!any()) return;
  if (sentences.edges.ends_in_word.empty()) sentences.edges = edges_;
  Phrases& phrases = sentences.constraints.emplace_back();
  int64_t tokens = 0;
  for (const RequiredText& required : find(line)) {
    const size_t before = required.begin;
    const bool begins_word = before == 0 || line[before - 1] == ' ' || line[before - 1] == '\t';
    std::vector<int32_t> ids = phrase_of(required.text, begins_word);
    if (ids.empty()) {
      unwritable_.add(required.text, number);
    } else {
      tokens += std::ssize(ids);
      phrases.push_back(std::move(ids));
    }
  }
  const int64_t most = longest_sequence(models_.models()) - 1;  // eos
  if (tokens > most) {
    fail(ErrorKind::kData, "[translate] what the translation of line ", number,
         " must contain has ", tokens, " tokens, the model writes at most ", most, '.');
  }
}

void RequiredTexts::check(const Hypothesis& best, const Phrases& phrases, int64_t number) {
  for (const size_t i : best.unmet) {
    lacking_.add(models_.tokenizers().target->decode(phrases.at(i)), number);
  }
}

void RequiredTexts::Missing::add(const std::string& text, int64_t line) {
  if (texts++ == 0) first = concat("'", strip(text), "' of line ", line);
}

void RequiredTexts::tell() const {
  const auto warn = [](const Missing& missing, const char* one, const char* several,
                       const char* what) {
    if (missing.texts == 0) return;
    std::cerr << concat("warning: ", missing.texts, missing.texts == 1 ? one : several, what,
                        ", the first is ", missing.first, ".\n");
  };
  warn(unwritable_, " text", " texts", " to keep cannot be written with the model's vocabulary");
  warn(lacking_, " required text is", " required texts are",
       " missing in translations that the length limit ended");
}

}  // namespace tapestry
