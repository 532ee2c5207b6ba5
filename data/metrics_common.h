// Shared by BLEU, chrF and ROUGE; private to data/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tapestry::metrics {

using Symbols = std::u32string;

/// Words between white space.
std::vector<Symbols> split_words(const Symbols& text);

/// Gives each word a number, so that a sentence of words becomes a sequence of symbols.
class WordIds {
 public:
  Symbols number(const std::vector<Symbols>& words);

 private:
  std::unordered_map<Symbols, char32_t> ids_;
};

struct NgramMatches {
  int64_t hypothesis = 0;  ///< n-grams of the hypothesis
  int64_t reference = 0;
  int64_t matched = 0;  ///< each n-gram counts at most as often as in the reference
};
NgramMatches match_ngrams(const Symbols& hypothesis, const Symbols& reference, int order);

/// Code points of `text`, in lower case if `lowercase`.
Symbols symbols_of(std::string_view text, bool lowercase);

/// Throws Error(kData) unless there are as many hypotheses as references, and at least one.
void check_lines(const char* who, size_t hypotheses, size_t references);

/// "tapestry-0.1.0"
std::string version();

/// printf("%.*f")
std::string fixed(double value, int digits);

}  // namespace tapestry::metrics
