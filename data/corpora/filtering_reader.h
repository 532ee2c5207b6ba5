// The checks that every reader of pairs makes; private to data/corpora/.
#pragma once

#include <xxhash.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "data/corpora/corpus.h"
#include "data/files/text.h"
#include "data/files/utf8.h"

namespace tapestry {

/// Shared by all kinds of corpora: checks of the text, the split and the limit.
class FilteringReader : public PairReader {
 public:
  explicit FilteringReader(const CorpusSpec& spec) : spec_(spec) {}

  /// Leaves out what is not clean, and among it what `seen` knows.
  void clean(std::shared_ptr<SeenTexts> seen) { cleaning_.emplace(spec_.clean, std::move(seen)); }

  bool next(TextPair& pair) final {
    while (spec_.limit == 0 || counts_.kept < spec_.limit) {
      if (!fetch(pair)) return false;
      ++counts_.read;
      if (drops(pair)) continue;
      if (!in_split(pair.source)) {
        ++counts_.other_split;
        continue;
      }
      if (cleaning_ && !is_clean(pair)) continue;
      ++counts_.kept;
      return true;
    }
    return false;
  }

 protected:
  // Gets the next pair of the file, unchanged. Subclasses count the pairs that they drop, also as
  // read.
  virtual bool fetch(TextPair& pair) = 0;
  virtual bool drops_kind(const TextPair&) { return false; }

  void drop(Drop reason, const std::string& place) { counts_.drop(reason, place); }

  const CorpusSpec spec_;
  std::string weight_;  // weight of the pair as text; only if pairs have weights
  std::string score_;   // likewise

 private:
  bool drops(TextPair& pair) {
    const CorpusSpec::Kind kind = spec_.kind();
    const bool both = kind != CorpusSpec::Kind::kText && kind != CorpusSpec::Kind::kTalks;
    const bool preferred = kind == CorpusSpec::Kind::kPreferences;
    const bool compared = preferred || !spec_.negative_column.empty();
    const auto any = [&](auto&& test) {
      return test(pair.source) || (both && test(pair.target)) ||
             (compared && test(pair.rejected)) || (spec_.has_two_texts() && test(pair.second));
    };
    const auto is_invalid = [](const std::string& text) {
      return find_invalid_utf8(text) != std::string::npos;
    };
    const auto has_nul = [](const std::string& text) {
      return text.find('\0') != std::string::npos;
    };
    if (any(is_invalid)) {
      const bool single =
          any([&](const std::string& text) { return is_invalid(text) && looks_single_byte(text); });
      drop(Drop::kInvalidUtf8,
           pair.place + (single ? ": it looks like Latin-1 or Windows-1252, expected UTF-8" : ""));
    } else if (any(has_nul)) {
      drop(Drop::kNulByte, pair.place);
    } else if (any([](const std::string& text) { return is_blank(text); })) {
      drop(Drop::kEmpty, pair.place);
    } else if (compared && pair.target == pair.rejected) {
      drop(Drop::kMalformed, pair.place + (preferred ? ": both answers are equal"
                                                     : ": target and negative are equal"));
    } else if (spec_.has_pair_weights() && !set_weight(pair)) {
      // It is counted.
    } else if (!spec_.score_column.empty() && !set_score(pair)) {
      // This, too.
    } else {
      return drops_kind(pair);
    }
    return true;
  }

  bool is_clean(const TextPair& pair) {
    const auto found = (*cleaning_)(pair.source, pair.target);
    if (!found) return true;
    drop(found->reason, found->what.empty() ? pair.place : pair.place + ": " + found->what);
    return false;
  }

  // Sums of multiples of it are exact, so that no order of adding, and no number of ranks, shows.
  static constexpr double kWeightUnit = 0x1p-20;

  bool set_weight(TextPair& pair) {
    double weight = 0;
    if (!parse_number(weight_, weight) || weight < 0 || weight > CorpusSpec::kLargestPairWeight) {
      drop(Drop::kMalformed, concat(pair.place, ": the weight must be a number from 0 to ",
                                    CorpusSpec::kLargestPairWeight, ", got '", weight_, '\''));
      return false;
    }
    pair.weight = static_cast<float>(std::round(weight / kWeightUnit) * kWeightUnit);
    if (pair.weight == 0) drop(Drop::kNoWeight, pair.place);
    return pair.weight > 0;
  }

  bool set_score(TextPair& pair) {
    double score = 0;
    const bool is_number = parse_number(score_, score) && std::isfinite(static_cast<float>(score));
    if (is_number) {
      pair.score = static_cast<float>(score);
    } else {
      drop(Drop::kMalformed,
           concat(pair.place, ": the score must be a number, got '", score_, '\''));
    }
    return is_number;
  }

  bool in_split(const std::string& source) const {
    if (spec_.split == "all") return true;
    const uint64_t hundredth = XXH3_64bits(source.data(), source.size()) % 100;
    return spec_.split == (hundredth == 0 ? "test" : hundredth == 1 ? "valid" : "train");
  }

  std::optional<Cleaning> cleaning_;
};

}  // namespace tapestry
