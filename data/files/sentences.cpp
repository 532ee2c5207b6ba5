#include "data/files/sentences.h"

#include <unicode/brkiter.h>
#include <unicode/filteredbrk.h>
#include <unicode/uloc.h>
#include <unicode/utext.h>

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

struct LanguageRules {
  const char* language;
  bool ordinals;              // "3." is the third
  const char* abbreviations;  // before a word with a capital, or a number; without their last dot
};

// What CLDR lacks, or does not find at the beginning of a text.
constexpr LanguageRules kRules[] = {
    {"en", false,
     "Mr Mrs Ms Dr Prof St Rev Gen Col Lt Sgt Capt Cpt Gov Sen Rep Hon Messrs Fig Figs Vol "
     "vol pp ed eds Eq Eqs Sec Ch Ref Refs Art cf vs viz approx dept Dept est e.g i.e"},
    {"de", true,
     "Dr Prof Hr Fr Frl Dipl Ing St Str Nr Nrn Abb Abs Art Tab Bd Bde Hrsg Kap Aufl Jh Jhd bzw ca "
     "vgl Vgl evtl ggf inkl exkl zzgl sog bspw geb gest Tel z.B d.h u.a i.d.R o.g s.o s.u"},
    {"fr", false, "M MM Mme Mmes Mlle Mlles Dr Pr St Ste Me Mgr art fig cf env av apr chap vol p"},
    {"es", false, "Sr Sra Srta Sres Dr Dra D Dña Prof Ud Uds Vd núm pág págs art fig cap vol cf"},
    {"it", false, "Sig Sigg Dott Prof Avv Ing On Gen Col art fig cap vol pag pagg cfr ecc"},
    {"pt", false, "Sr Sra Srs Dr Dra Prof Eng Exmo Exma art fig cap vol pág págs cf núm"},
    {"nl", false, "Dhr Mevr Mr Dr Prof Ir Ing St nr nrs blz art fig afb vgl bijv bv ca resp d.w.z"},
    {"da", true, "Hr Fru Dr Prof Nr nr f.eks bl.a ca stk kap"},
    {"nb", true, "Hr Fru Dr Prof Nr nr f.eks bl.a ca kap"},
    {"sv", false, "Hr Fru Dr Prof Nr nr t.ex bl.a ca kap"},
    {"fi", true, "esim ks prof tri nro"},
    {"cs", true, "Dr Prof Ing Mgr např č str obr tab"},
    {"sk", true, "Dr Prof Ing Mgr napr č str obr tab"},
    {"pl", true, "Dr Prof inż mgr np nr ul str rys tab tzw"},
    {"hu", true, "Dr Prof pl ún sz"},
    {"ru", false, "г гг др проф акад им рис табл стр ср т.е т.к т.д"},
};

bool is_language(const std::string& language) {
  for (const char* const* code = uloc_getISOLanguages(); *code != nullptr; ++code) {
    if (language == *code || language == uloc_getISO3Language(*code)) return true;
  }
  return false;
}

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(' ', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

struct SentenceSplitter::Breaks {
  std::unique_ptr<icu::BreakIterator> iterator;
  UText* text = nullptr;

  ~Breaks() { utext_close(text); }
};

SentenceSplitter::SentenceSplitter(const std::string& language)
    : breaks_(std::make_unique<Breaks>()) {
  if (!is_language(language)) {
    fail(ErrorKind::kConfig, "[split] expected a code of a language such as en or de, got '",
         language, "'.");
  }
  UErrorCode status = U_ZERO_ERROR;
  const icu::Locale locale(language.c_str());
  auto* const plain = icu::BreakIterator::createSentenceInstance(locale, status);
  check(U_SUCCESS(status), "split", "ICU cannot find sentences: ", u_errorName(status), '.');
  UErrorCode listed = U_ZERO_ERROR;  // a failure for languages without a list
  const std::unique_ptr<icu::FilteredBreakIteratorBuilder> builder(
      icu::FilteredBreakIteratorBuilder::createInstance(locale, listed));
  // It owns the plain one.
  breaks_->iterator.reset(U_SUCCESS(listed) ? builder->build(plain, status) : plain);
  check(U_SUCCESS(status), "split", "ICU cannot find sentences: ", u_errorName(status), '.');
  const auto* const rules = std::ranges::find_if(kRules, [&](const LanguageRules& one) {
    return locale.getLanguage() == std::string(one.language);
  });
  if (rules == std::end(kRules)) return;
  ordinals_ = rules->ordinals;
  abbreviations_ = words_of(rules->abbreviations);
}

SentenceSplitter::~SentenceSplitter() = default;

// Whether a sentence may end with this text, which has no white space behind it.
bool SentenceSplitter::ends_sentence(std::string_view before) const {
  if (!before.ends_with('.')) return true;
  before.remove_suffix(1);
  std::string_view word = before.substr(before.find_last_of(" \t") + 1);
  while (word.starts_with('(') || word.starts_with('[') || word.starts_with('"')) {
    word.remove_prefix(1);
  }
  if (word.empty()) return true;
  const bool digits = std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
  if (digits) return !ordinals_ || word.size() > 2;
  size_t end = 0;
  const char32_t first = next_code_point(word, end);
  if (end == word.size() && is_word_character(first)) return false;
  const std::string lower = lower_case(word);  // at the beginning of a sentence
  return std::ranges::none_of(abbreviations_, [&](std::string_view abbreviation) {
    return abbreviation == word || abbreviation == lower;
  });
}

std::vector<SentencePart> SentenceSplitter::split(std::string_view line) {
  UErrorCode status = U_ZERO_ERROR;
  breaks_->text = utext_openUTF8(breaks_->text, line.data(), std::ssize(line), &status);
  breaks_->iterator->setText(breaks_->text, status);
  check(U_SUCCESS(status), "split", "ICU cannot read the text: ", u_errorName(status), '.');
  std::vector<SentencePart> parts;
  size_t begin = 0;
  breaks_->iterator->first();
  for (int32_t at = breaks_->iterator->next(); at != icu::BreakIterator::DONE;
       at = breaks_->iterator->next()) {
    const auto end = static_cast<size_t>(at);
    const std::string_view whole = line.substr(begin, end - begin), text = strip(whole);
    if (text.empty()) continue;
    if (end < line.size() && !ends_sentence(text)) continue;
    const size_t behind = static_cast<size_t>(text.data() - line.data()) + text.size();
    parts.push_back({text, line.substr(behind, end - behind)});
    begin = end;
  }
  return parts;
}

}  // namespace tapestry
