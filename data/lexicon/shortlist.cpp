#include "data/lexicon/shortlist.h"

#include <bit>

#include "core/base/error.h"

namespace tapestry {
namespace {

// A set of tokens, of which the list is ascending.
class TokenSet {
 public:
  explicit TokenSet(int64_t tokens)
      : tokens_(tokens), words_(static_cast<size_t>(tokens + 63) / 64) {}

  void add(int32_t token) {
    check(token >= 0 && token < tokens_, "shortlist", "expected tokens in [0, ", tokens_, "), got ",
          token, '.');
    words_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  }
  std::vector<int32_t> list() const {
    std::vector<int32_t> tokens;
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
        tokens.push_back(static_cast<int32_t>(64 * w) + std::countr_zero(bits));
      }
    }
    return tokens;
  }

 private:
  int64_t tokens_;
  std::vector<uint64_t> words_;
};

std::vector<int32_t> best(const std::vector<Lexicon::Translation>& list, int64_t size) {
  std::vector<int32_t> tokens;
  for (const Lexicon::Translation& one : list) {
    if (std::ssize(tokens) == size) break;
    tokens.push_back(one.target);
  }
  return tokens;
}

}  // namespace

Shortlist::Shortlist(const Lexicon& lexicon, ShortlistOptions options)
    : target_tokens_(options.target_tokens), one_vocabulary_(options.one_vocabulary) {
  TokenSet common(target_tokens_);
  for (const int32_t token : options.always) common.add(token);
  for (const int32_t token : best(lexicon.frequent, options.size)) common.add(token);
  common_ = common.list();
  for (const auto& list : lexicon.translations) translations_.push_back(best(list, options.size));
}

std::vector<int32_t> Shortlist::of(std::span<const int32_t> source,
                                   std::span<const int32_t> more) const {
  TokenSet tokens(target_tokens_);
  for (const int32_t token : common_) tokens.add(token);
  for (const int32_t token : more) tokens.add(token);
  for (const int32_t token : source) {
    if (one_vocabulary_) tokens.add(token);
    for (const int32_t translation : translations(token)) tokens.add(translation);
  }
  return tokens.list();
}

std::span<const int32_t> Shortlist::translations(int32_t source) const {
  if (source < 0 || source >= source_tokens()) return {};
  return translations_[static_cast<size_t>(source)];
}

}  // namespace tapestry
