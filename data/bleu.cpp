#include <cmath>

#include "core/error.h"
#include "data/metrics.h"
#include "data/metrics_common.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

using metrics::Symbols;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
bool is_point(char32_t c) { return c == U'.' || c == U','; }

// ASCII punctuation except apostrophe, comma, minus and full stop, which depend on their
// neighbours.
bool is_always_split(char32_t c) {
  return (c >= U' ' && c <= U'&') || (c >= U'(' && c <= U'+') || c == U'/' ||
         (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
}

Symbols split_punctuation(const Symbols& text) {
  Symbols out;
  for (const char32_t c : text) {
    if (is_always_split(c)) {
      out += {U' ', c, U' '};
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// Walks over pairs of neighbours like a regular expression of two characters: a match consumes
// both.
template <class Matches, class Emit>
Symbols rewrite_pairs(const Symbols& text, Matches&& matches, Emit&& emit) {
  Symbols out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      emit(out, text[i], text[i + 1]);
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<Symbols> words_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  Symbols symbols = split_punctuation(U' ' + decode_utf8(text) + U' ');
  symbols = rewrite_pairs(
      symbols, [](char32_t a, char32_t b) { return !is_digit(a) && is_point(b); },
      [](Symbols& out, char32_t a, char32_t b) {
        out += {a, U' ', b, U' '};
      });
  symbols = rewrite_pairs(
      symbols, [](char32_t a, char32_t b) { return is_point(a) && !is_digit(b); },
      [](Symbols& out, char32_t a, char32_t b) {
        out += {U' ', a, U' ', b};
      });
  symbols = rewrite_pairs(
      symbols, [](char32_t a, char32_t b) { return is_digit(a) && b == U'-'; },
      [](Symbols& out, char32_t a, char32_t b) {
        out += {a, U' ', b, U' '};
      });
  return metrics::split_words(symbols);
}

// Removes trailing white space before tokenisation, so that a line ending in "-\n" keeps its
// hyphen.
std::string strip_end(std::string_view text) {
  size_t end = 0;
  for (size_t i = 0; i < text.size();) {
    if (!is_space(next_code_point(text, i))) end = i;
  }
  return std::string(text.substr(0, end));
}

std::vector<Symbols> words_of(std::string_view text, const BleuOptions& options) {
  const std::string line = strip_end(options.lowercase ? lower_case(text) : std::string(text));
  return options.tokenize == "13a" ? words_13a(line) : metrics::split_words(decode_utf8(line));
}

void finish_score(BleuScore& bleu) {
  const auto hypothesis = static_cast<double>(bleu.hypothesis_tokens);
  const auto reference = static_cast<double>(bleu.reference_tokens);
  bleu.brevity_penalty = 1.0;
  if (bleu.hypothesis_tokens < bleu.reference_tokens) {
    bleu.brevity_penalty = bleu.hypothesis_tokens > 0 ? std::exp(1 - reference / hypothesis) : 0.0;
  }
  bool any = false;
  for (const int64_t correct : bleu.correct) any |= correct > 0;
  if (!any) return;
  double smoothing = 1;
  double log_sum = 0;
  constexpr double kLogOfZero = -9999999999.0;  // sacreBLEU's value: it makes the score exactly 0
  bool has_ngrams = true;
  for (size_t n = 0; n < BleuScore::kOrders; ++n) {
    const auto total = static_cast<double>(bleu.total[n]);
    has_ngrams = has_ngrams && bleu.total[n] > 0;
    if (has_ngrams && bleu.correct[n] == 0) {
      smoothing *= 2;
      bleu.precisions[n] = 100.0 / (smoothing * total);
    } else if (has_ngrams) {
      bleu.precisions[n] = 100.0 * static_cast<double>(bleu.correct[n]) / total;
    }
    log_sum += bleu.precisions[n] > 0 ? std::log(bleu.precisions[n]) : kLogOfZero;
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / BleuScore::kOrders);
}

}  // namespace

void BleuOptions::validate(const OptionReport& report) const {
  report.expect_one_of("tokenize", tokenize, kTokenizers);
}

std::string tokenize_13a(std::string_view line) {
  std::string out;
  for (const Symbols& word : words_13a(std::string(line))) {
    if (!out.empty()) out.push_back(' ');
    for (const char32_t c : word) append_utf8(out, c);
  }
  return out;
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const BleuOptions& options) {
  options.validate();
  metrics::check_lines("bleu", hypotheses.size(), references.size());
  BleuScore bleu;
  bleu.sentences = static_cast<int64_t>(hypotheses.size());
  bleu.signature =
      concat("nrefs:1|case:", options.lowercase ? "lc" : "mixed", "|eff:no|tok:", options.tokenize,
             "|smooth:exp|version:", metrics::version());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    metrics::WordIds ids;
    const Symbols hypothesis = ids.number(words_of(hypotheses[i], options));
    const Symbols reference = ids.number(words_of(references[i], options));
    bleu.hypothesis_tokens += static_cast<int64_t>(hypothesis.size());
    bleu.reference_tokens += static_cast<int64_t>(reference.size());
    for (int n = 0; n < BleuScore::kOrders; ++n) {
      const metrics::NgramMatches matches = metrics::match_ngrams(hypothesis, reference, n + 1);
      bleu.correct[static_cast<size_t>(n)] += matches.matched;
      bleu.total[static_cast<size_t>(n)] += matches.hypothesis;
    }
  }
  finish_score(bleu);
  return bleu;
}

std::string BleuScore::str() const {
  std::string text = concat("BLEU|", signature, " = ", metrics::fixed(score, 2), ' ');
  for (size_t n = 0; n < kOrders; ++n) {
    if (n > 0) text.push_back('/');
    text += metrics::fixed(precisions[n], 1);
  }
  const double ratio = reference_tokens == 0 ? 0.0
                                             : static_cast<double>(hypothesis_tokens) /
                                                   static_cast<double>(reference_tokens);
  return text + concat(" (BP = ", metrics::fixed(brevity_penalty, 3),
                       " ratio = ", metrics::fixed(ratio, 3), " hyp_len = ", hypothesis_tokens,
                       " ref_len = ", reference_tokens, ')');
}

}  // namespace tapestry
