// spBLEU: the pieces of a SentencePiece model are the words.
#include <sentencepiece_processor.h>

#include <memory>
#include <vector>

#include "core/base/error.h"
#include "data/files/unpacked_file.h"
#include "data/files/utf8.h"
#include "data/scores/words.h"

namespace tapestry::word_rules_of {

WordRule::Split sentencepiece(const std::string& model) {
  const auto processor = std::make_shared<::sentencepiece::SentencePieceProcessor>();
  if (const auto status = processor->LoadFromSerializedProto(read_unpacked(model)); !status.ok()) {
    fail(ErrorKind::kData, "[bleu] ", model, " is not a SentencePiece model: ", status.message(),
         '.');
  }
  return [processor](std::string_view line) {
    std::vector<std::string> pieces;
    const auto status = processor->Encode(line, &pieces);
    check(status.ok(), "bleu", "SentencePiece cannot encode: ", status.message(), '.');
    std::string text;
    for (const std::string& piece : pieces) text += piece + ' ';
    return decode_utf8(text);
  };
}

}  // namespace tapestry::word_rules_of
