// The pre-tokenizers of a tokenizer.json, which cut a normalised text into pieces for its model;
// private to data/tokenizers/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokenizers/parts/part.h"
#include "data/tokenizers/parts/placed_text.h"

namespace tapestry::tokenizers {

/// The context of the first piece.
struct PiecePlace {
  bool begins_text = true;  ///< no text before it
  bool continued = false;   ///< the text follows pieces that are not here
};

/// Cuts and changes pieces; an empty one never stays.
using Cut = std::function<void(std::vector<PlacedText>& pieces, const PiecePlace& place)>;

struct PreTokenizer {
  Cut cut;
  /// The model's vocabulary writes bytes as characters (byte_characters()); pieces are bytes.
  bool byte_level = false;
};

/// The part "pre_tokenizer". Throws Error(kData) for a type or a key that is not known.
PreTokenizer make_pre_tokenizer(const Part& part);

/// GPT-2's characters for the 256 bytes (Radford et al. 2019): printable ones stand for themselves,
/// the others are U+0100, U+0101, ...
const std::vector<std::string>& byte_characters();
/// The bytes that a token of such a vocabulary stands for; the token itself if it has other
/// characters.
std::string bytes_of_token(const std::string& token);

}  // namespace tapestry::tokenizers
