#include "apps/interop/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/interop/foreign_folder.h"
#include "apps/interop/piece_folders.h"
#include "core/base/text.h"
#include "data/files/files.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/marian.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer_json.h"

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

HuggingFaceHints hints_of(const nlohmann::ordered_json& config, int64_t rows) {
  HuggingFaceHints hints;
  const auto read = [&](const char* key, std::optional<int64_t>& id) {
    auto found = config.find(key);
    if (found == config.end()) return;
    using Json = nlohmann::ordered_json;
    for (const Json& value : found->is_array() ? *found : Json::array({*found})) {
      if (!value.is_number_integer()) continue;
      const auto number = value.template get<int64_t>();
      // -1 often means none, and a class's default may be larger than the vocabulary.
      if (number < 0 || (rows > 0 && number >= rows)) continue;
      if (!id) id = number;  // of several ends the first is the usual one
      if (&id == &hints.eos) hints.ends.push_back(number);
    }
  };
  read("pad_token_id", hints.pad);
  read("bos_token_id", hints.bos);
  read("eos_token_id", hints.eos);
  read("decoder_start_token_id", hints.start);
  read("forced_bos_token_id", hints.first);
  hints.rows = rows;
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string()) {
    hints.model_type = type->get<std::string>();
  }
  return hints;
}

// True for a file of ours, which an export wrote: it has our ids, unlike those of other systems.
bool is_own(const std::string& path) {
  if (path.ends_with(".txt")) return true;
  try {
    return !load_tokenizer(read_file(path), path)->special().one_text;
  } catch (const Error&) {
    return false;
  }
}

std::string note_of(std::vector<std::string> without_row) {
  const size_t count = without_row.size();
  constexpr size_t kShown = 8;
  if (count > kShown) without_row.resize(kShown);
  return concat(count, count == 1 ? " token of the tokenizer has" : " tokens of the tokenizer have",
                " no row in the model's table, and no text gets ", count == 1 ? "it" : "them",
                ": '", join(without_row, "', '"), '\'',
                count > kShown ? concat(", ", count - kShown, " more.") : ".");
}

[[noreturn]] void refuse(const std::string& folder) {
  const bool other = fs::exists(folder + "/sentencepiece.bpe.model");
  fail(ErrorKind::kData, "[import] ", folder,
       " must have a tokenizer that Tapestry reads (tokenizer.json, tokenizer.model, spiece.model, "
       "tokenizer.txt, vocab.txt, vocab.json with merges.txt, source.spm with target.spm and "
       "vocab.json, or sentencepiece.bpe.model of xlm-roberta, camembert or m2m_100 with "
       "vocab.json), got ",
       other ? "sentencepiece.bpe.model, whose ids are not the model's." : "none.");
}

}  // namespace

TokenizerPair find_tokenizers(const std::string& folder, const Counts& counts,
                              const nlohmann::ordered_json& config,
                              std::vector<std::string>& notes) {
  const auto path = first_of(folder, {"tokenizer.model", "spiece.model", "tokenizer.txt"});
  const bool json = has_huggingface_tokenizer(folder);
  if (!json) {
    const auto tokenizer = read_pieces(folder, config, hints_of(config, counts.source_vocab));
    if (tokenizer != nullptr) return {tokenizer, tokenizer};
  }
  if (path && (!json || is_own(*path))) {
    const auto tokenizer = read_padded(*path, counts.source_vocab);
    return {tokenizer, tokenizer};
  }
  const auto source = first_of(folder, {"source.model", "source.txt"});
  const auto target = first_of(folder, {"target.model", "target.txt"});
  if (!source || !target) {
    if (has_marian_tokenizers(folder)) {
      return read_marian(folder, hints_of(config, counts.source_vocab),
                         hints_of(config, counts.target_vocab));
    }
    if (!json) refuse(folder);
    std::vector<std::string> without_row;
    const std::string bytes =
        read_huggingface(folder, hints_of(config, counts.source_vocab), &without_row);
    if (!without_row.empty()) notes.push_back(note_of(without_row));
    const auto tokenizer = load_tokenizer(bytes, folder + "/tokenizer.json");
    return {tokenizer, tokenizer};
  }
  const TokenizerPair pair{load_tokenizer(read_file(*source), *source),
                           load_tokenizer(read_file(*target), *target)};
  if (pair.source->vocab_size() != counts.source_vocab ||
      pair.target->vocab_size() != counts.target_vocab) {
    fail(ErrorKind::kData, "[import] ", *source, " and ", *target, " have ",
         pair.source->vocab_size(), " and ", pair.target->vocab_size(), " pieces, the model has ",
         counts.source_vocab, " and ", counts.target_vocab, " rows for them.");
  }
  return pair;
}

}  // namespace tapestry::interop
