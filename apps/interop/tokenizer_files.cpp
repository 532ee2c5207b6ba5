#include "apps/interop/tokenizer_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/text.h"
#include "data/files.h"
#include "data/sentencepiece_model.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_of(const std::string& folder,
                                    const std::vector<const char*>& names) {
  for (const char* name : names) {
    const std::string path = folder + "/" + name;
    if (fs::is_regular_file(path)) return path;
  }
  return std::nullopt;
}

// A model has at least a row for each piece, and often more.
std::shared_ptr<const Tokenizer> read_padded(const std::string& path, int64_t rows) {
  std::string bytes = read_file(path);
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(bytes, path);
  const int64_t pieces = tokenizer->vocab_size();
  if (pieces == rows) return tokenizer;
  if (pieces > rows || !path.ends_with(".model")) {
    fail(ErrorKind::kData, "[import] ", path, " has ", pieces, " pieces, the model has ", rows,
         " rows for them.");
  }
  return load_tokenizer(with_unused_pieces(bytes, pieces, rows), path);
}

// Marian's files give each piece an id of their own choice; ours are those of SentencePiece.
void check_marian_vocabulary(const std::string& path, const Tokenizer& tokenizer) {
  const auto ids = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!ids.is_object()) fail(ErrorKind::kData, "[import] ", path, " is not a JSON object.");
  for (const auto& [piece, id] : ids.items()) {
    const bool known = id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size();
    if (known && tokenizer.piece(id.get<int32_t>()) == piece) continue;
    fail(ErrorKind::kData, "[import] ", path, " gives '", piece, "' the id ", id.dump(),
         ", which its SentencePiece model does not: such tokenizers cannot be read yet.");
  }
}

[[noreturn]] void refuse(const std::string& folder) {
  std::vector<std::string> others;
  for (const char* name :
       {"tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model"}) {
    if (fs::exists(folder + "/" + name)) others.emplace_back(name);
  }
  fail(ErrorKind::kData, "[import] ", folder,
       " must have a tokenizer that Tapestry reads (tokenizer.model, spiece.model, tokenizer.txt, "
       "or a pair of source.spm and target.spm), got ",
       others.empty() ? "none" : join(others, ", "), '.');
}

}  // namespace

TokenizerPair find_tokenizers(const std::string& folder, const Counts& counts) {
  if (const auto path = first_of(folder, {"tokenizer.model", "spiece.model", "tokenizer.txt"})) {
    const auto tokenizer = read_padded(*path, counts.source_vocab);
    return {tokenizer, tokenizer};
  }
  const auto source = first_of(folder, {"source.model", "source.txt", "source.spm"});
  const auto target = first_of(folder, {"target.model", "target.txt", "target.spm"});
  if (!source || !target) refuse(folder);
  TokenizerPair pair{load_tokenizer(read_file(*source), *source),
                     load_tokenizer(read_file(*target), *target)};
  if (source->ends_with(".spm")) {
    check_marian_vocabulary(folder + "/vocab.json", *pair.source);
    const auto own = first_of(folder, {"target_vocab.json", "vocab.json"});
    check_marian_vocabulary(*own, *pair.target);
  }
  if (pair.source->vocab_size() != counts.source_vocab ||
      pair.target->vocab_size() != counts.target_vocab) {
    fail(ErrorKind::kData, "[import] ", *source, " and ", *target, " have ",
         pair.source->vocab_size(), " and ", pair.target->vocab_size(), " pieces, the model has ",
         counts.source_vocab, " and ", counts.target_vocab, " rows for them.");
  }
  return pair;
}

}  // namespace tapestry::interop
