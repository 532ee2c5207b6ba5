// Unicode normalisation of text by the names of TokenizerOptions::kNormalizations, for tokenizers
// of our own: the rules that SentencePiece has under these names. Private to data/.
#pragma once

#include <string>
#include <string_view>

namespace tapestry::tokenizers {

/// U+2581, the mark for the space in front of a word.
inline constexpr std::string_view kSpacePiece = "\xE2\x96\x81";

/// nfkc: compatibility composition (Unicode annex 15). nmt_nfkc: white space of all kinds becomes a
/// space and control characters go, before that; U+FF5E stays. cf: folds case, too. identity: the
/// text as it is. With each of them U+2581 becomes a space, since decoding cannot tell them apart,
/// and an ill-formed byte becomes U+FFFD.
///
/// Safe to use from several threads at once.
class Normalizer {
 public:
  explicit Normalizer(const std::string& name);

  /// `text` itself if nothing changes, else a view of `buffer`.
  std::string_view operator()(std::string_view text, std::string& buffer) const;

 private:
  void compose(std::string& text) const;

  bool nmt_ = false;
  bool nfkc_ = false;
  bool fold_case_ = false;
};

}  // namespace tapestry::tokenizers
