#include "data/examples/masking.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <cmath>

#include "core/base/draws.h"
#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// A draw block that belongs to no position.
constexpr int64_t kFallbackPlace = 0xFFFFFFFF;

struct Unit {
  size_t begin, end;
};

// True if the character's script has no spaces between words: scripts that UAX 14 breaks by a
// dictionary (Thai, Lao, Khmer, Burmese, ...), Han, Kana and other ideographs of Unicode.
bool is_without_spaces(char32_t c) {
  const auto character = static_cast<UChar32>(c);
  switch (u_getIntPropertyValue(character, UCHAR_LINE_BREAK)) {
    case U_LB_COMPLEX_CONTEXT:
    case U_LB_IDEOGRAPHIC:
    case U_LB_CONDITIONAL_JAPANESE_STARTER:
      return true;
    default:
      break;
  }
  return uscript_hasScript(character, USCRIPT_HIRAGANA) ||
         uscript_hasScript(character, USCRIPT_KATAKANA) ||
         uscript_hasScript(character, USCRIPT_TIBETAN);
}

bool begins_without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  size_t at = 0;
  return !text.empty() && is_without_spaces(next_code_point(text, at));
}

// Tokens that are chosen together: a word's, or each token by itself.
std::vector<Unit> units_of(std::span<const int32_t> tokens, const MaskingVocabulary& vocabulary,
                           bool whole_word) {
  std::vector<Unit> units;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!vocabulary.may_be_masked(tokens[i])) continue;
    const bool continues = whole_word && i > 0 && vocabulary.may_be_masked(tokens[i - 1]) &&
                           !vocabulary.starts_word(tokens[i]);
    if (continues) {
      units.back().end = i + 1;
    } else {
      units.push_back({i, i + 1});
    }
  }
  // A longer run is not a word: it would be most of a row.
  constexpr auto kLongest = static_cast<size_t>(MaskingOptions::kLongestWord);
  if (std::ranges::all_of(units, [](const Unit& u) { return u.end - u.begin <= kLongest; })) {
    return units;
  }
  std::vector<Unit> parts;
  for (const Unit& unit : units) {
    if (unit.end - unit.begin <= kLongest) {
      parts.push_back(unit);
    } else {
      for (size_t i = unit.begin; i < unit.end; ++i) parts.push_back({i, i + 1});
    }
  }
  return parts;
}

}  // namespace

void MaskingOptions::validate(const OptionReport& report) const {
  const auto share = [&](const char* member, double value) {
    return report.expect(value >= 0 && value <= 1, member, "must be in [0, 1], got ", value, '.');
  };
  report.expect(probability > 0 && probability <= 1, "probability", "must be in (0, 1], got ",
                probability, '.');
  constexpr double kRounding = 1e-9;
  if (share("mask_share", mask_share) && share("random_share", random_share)) {
    report.expect(mask_share + random_share <= 1 + kRounding, "random_share",
                  "must be at most 1 together with mask_share, got ", random_share, " and ",
                  mask_share, '.');
  }
}

MaskingVocabulary::MaskingVocabulary(const Tokenizer& tokenizer) : special_(tokenizer.special()) {
  if (!tokenizer.mask_id()) {
    fail(ErrorKind::kConfig, "[data] masking needs a tokenizer with the piece ", kMaskPiece,
         ", got one without.");
  }
  mask_id_ = *tokenizer.mask_id();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool ordinary = !tokenizer.is_special(id);
    // ASCII needs no look at the text.
    const auto is_ascii = [](char c) { return c >= 0; };
    starts_word_.push_back(ordinary && (tokenizer.starts_word(id) ||
                                        (!std::ranges::all_of(tokenizer.piece(id), is_ascii) &&
                                         begins_without_spaces(tokenizer.decode({id})))));
    if (ordinary) ordinary_ids_.push_back(id);
  }
}

bool MaskingVocabulary::starts_word(int32_t id) const {
  check(id >= 0 && id < static_cast<int32_t>(starts_word_.size()), "data", "ids must be in [0, ",
        starts_word_.size(), "), got ", id, '.');
  return starts_word_[static_cast<size_t>(id)];
}

double MaskingVocabulary::word_share() const {
  return static_cast<double>(std::ranges::count(starts_word_, true)) /
         static_cast<double>(std::max<size_t>(1, ordinary_ids_.size()));
}

MaskedTokens mask_tokens(std::span<const int32_t> tokens, const MaskingVocabulary& vocabulary,
                         const MaskingOptions& options, const PhiloxKey& key, int64_t row) {
  MaskedTokens masked{{tokens.begin(), tokens.end()},
                      std::vector<int32_t>(tokens.size(), kNoTarget)};
  // Each position has four draws: whether it (or its word) is chosen, how it is replaced, and two
  // for the random piece.
  const auto draws_at = [&](size_t position) {
    return philox(key, draw_index(row, static_cast<int64_t>(position)));
  };
  const auto choose = [&](const Unit& unit) {
    for (size_t i = unit.begin; i < unit.end; ++i) {
      masked.targets[i] = tokens[i];
      const Philox4 draws = draws_at(i);
      const double fate = to_uniform(draws.v[1]);
      if (fate < options.mask_share) {
        masked.ids[i] = vocabulary.mask_id();
      } else if (fate < options.mask_share + options.random_share) {
        const auto& ids = vocabulary.ordinary_ids();
        const uint64_t bits = static_cast<uint64_t>(draws.v[2]) << 32 | draws.v[3];
        masked.ids[i] =
            ids[static_cast<size_t>(static_cast<unsigned __int128>(bits) * ids.size() >> 64)];
      }
    }
  };
  const auto units = units_of(tokens, vocabulary, options.whole_word);
  bool any = false;
  for (const Unit& unit : units) {
    if (to_uniform(draws_at(unit.begin).v[0]) >= options.probability) continue;
    choose(unit);
    any = true;
  }
  if (!any && !units.empty()) {
    Unit unit = units[philox_below(key, draw_index(row, kFallbackPlace), units.size())];
    size_t tokens = 0;
    for (const Unit& each : units) tokens += each.end - each.begin;
    const auto most = static_cast<size_t>(options.probability * static_cast<double>(tokens));
    unit.end = std::min(unit.end, unit.begin + std::max<size_t>(1, most));
    choose(unit);
  }
  return masked;
}

}  // namespace tapestry
