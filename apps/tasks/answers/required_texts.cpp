#include "apps/tasks/answers/required_texts.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// The kinds that the lines alone decide.
std::vector<std::string> kinds_of_texts(std::vector<std::string> kinds) {
  std::erase(kinds, RequiredTextOptions::kSymbols);
  return kinds;
}

}  // namespace

RequiredTexts::RequiredTexts(const RequiredTextOptions& options, const Translator& models,
                             const SearchOptions& search)
    : RequiredTexts(options.terms.empty() ? Terms() : Terms(options.terms), options, models,
                    search) {}

RequiredTexts::RequiredTexts(Terms terms, const RequiredTextOptions& options,
                             const Translator& models, const SearchOptions& search)
    : models_(models),
      terms_(std::move(terms)),
      soft_(options.terms_mode == "soft"),
      kept_(kinds_of_texts(options.keep)) {
  any_ = !options.keep.empty() || (!terms_.entries().empty() && !soft_);
  if (any_ && (search.do_sample || search.mbr_samples > 0)) {
    fail(ErrorKind::kConfig, "[translate] terms and texts to keep need a search, ",
         search.mbr_samples > 0 ? "mbr" : "do_sample", " draws tokens.");
  }
  if (std::ranges::count(options.keep, RequiredTextOptions::kSymbols) > 0) keep_symbols();
  if (terms_.entries().empty()) return;
  if (soft_) {
    check_marks();
  } else {
    check_terms();
  }
}

void RequiredTexts::keep_symbols() {
  const Tokenizer& source = *models_.tokenizers().source;
  if (source.symbols().empty()) {
    fail(
        ErrorKind::kConfig,
        "[translate] --keep symbols needs a model with tokenizer.user_symbols, this one has none.");
  }
  for (const int32_t id : source.symbols()) symbols_.push_back(source.piece(id));
}

void RequiredTexts::check_terms() const {
  for (const Terms::Entry& entry : terms_.entries()) {
    if (!phrase_of(entry.target, true).empty()) continue;
    fail(ErrorKind::kData, "[terms] ", entry.place,
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
  if (!soft_) found = terms_.find(line);
  for (const std::string& symbol : symbols_) {
    for (size_t at = 0; (at = line.find(symbol, at)) != line.npos; at += symbol.size()) {
      found.push_back({at, at + symbol.size(), symbol});
    }
  }
  for (RequiredText& text : kept_.find(line)) found.push_back(std::move(text));
  return without_overlaps(std::move(found));
}

std::string RequiredTexts::source(const std::string& line) const {
  return soft_ ? annotated(line, terms_.find(line)) : line;
}

void RequiredTexts::add(std::string_view line, int64_t number, Sentences& sentences) {
  if (!any()) return;
  if (sentences.edges.ends_in_word.empty()) sentences.edges = models_.edges();
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
  constexpr int64_t kListed = 1000;
  if (count++ < kListed) first.emplace_back(strip(text), line);
}

std::vector<std::string> RequiredTexts::missing() const {
  std::vector<std::string> texts;
  for (const Missing* missing : {&unwritable_, &lacking_}) {
    for (const auto& [text, line] : missing->first) texts.push_back(text);
  }
  return texts;
}

void RequiredTexts::tell() const {
  const auto warn = [](const Missing& missing, const char* one, const char* several,
                       const char* what) {
    if (missing.count == 0) return;
    const auto& [text, line] = missing.first[0];
    std::cerr << concat("warning: ", missing.count, missing.count == 1 ? one : several, what,
                        ", the first is '", text, "' of line ", line, ".\n");
  };
  warn(unwritable_, " text", " texts", " to keep cannot be written with the model's vocabulary");
  warn(lacking_, " required text is", " required texts are",
       " missing in translations that the length limit ended");
}

}  // namespace tapestry
