#include "apps/interop/piece_folders.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "apps/interop/foreign_folder.h"
#include "core/base/text.h"
#include "data/files/files.h"
#include "data/tokenizers/marian.h"
#include "data/tokenizers/parts/written_file.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer_json.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;
using Piece = SentencePieceModel::Piece;

constexpr const char* kFairseqPieces = "sentencepiece.bpe.model";

bool has(const std::string& folder, const char* file) {
  return fs::is_regular_file(folder + "/" + file);
}

Json options_of(const std::string& folder) {
  return read_json_if_there(folder + "/tokenizer_config.json");
}

std::string text_of(const Json& options, const char* key) {
  const Json value = options.value(key, Json());
  return value.is_string() ? value.get<std::string>() : "";
}

// The tokenizer of a tokenizer.json that was made of the file at `path`.
std::shared_ptr<const Tokenizer> made_of(const std::string& folder, const std::string& path,
                                         const std::string& tokenizer,
                                         const HuggingFaceHints& hints) {
  nlohmann::json vocabulary = nlohmann::json::object();  // an ordered one looks through all keys
  const Json made = Json::parse(tokenizer);
  const Json& pieces = made["model"]["vocab"];
  if (pieces.is_object()) {
    for (const auto& [piece, id] : pieces.items()) vocabulary[piece] = id.get<int64_t>();
  } else {
    for (const Json& piece : pieces) vocabulary[piece[0].get<std::string>()] = vocabulary.size();
  }
  const HuggingFaceIds ids = huggingface_ids(folder, path, vocabulary.dump(), hints);
  return load_tokenizer(join_huggingface(tokenizer, ids.json()), path);
}

// How many sentinels the class adds.
int64_t sentinels_of(const std::string& folder, int64_t usual) {
  constexpr int64_t kMost = TokenizerOptions::kMostSentinels;
  const Json given = options_of(folder).value("extra_ids", Json(usual));
  if (!given.is_number_integer() || given < 0 || given > kMost) {
    fail(ErrorKind::kData, "[import] ", folder, "/tokenizer_config.json has extra_ids ",
         given.dump(), ", expected a number from 0 to ", kMost, '.');
  }
  return given.get<int64_t>();
}

// T5's class puts its sentinels behind the pieces of the file.
std::shared_ptr<const Tokenizer> read_t5(const std::string& folder, const HuggingFaceHints& hints) {
  constexpr int64_t kUsualSentinels = 100;
  const std::string path = folder + "/spiece.model";
  const int64_t sentinels = sentinels_of(folder, kUsualSentinels);
  return made_of(folder, path, t5_tokenizer_json(read_file(path), sentinels, path), hints);
}

// Bytes as GPT-2 spells them: those that are printable stand for themselves.
std::string spelling_of(int byte) {
  const auto printable = [](int value) {
    return (value >= '!' && value <= '~') || (value >= 0xA1 && value <= 0xAC) ||
           (value >= 0xAE && value <= 0xFF);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int other = 0; other < byte; ++other) code += printable(other) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// ByT5: pad, eos, unk, then the bytes, then sentinels.
std::shared_ptr<const Tokenizer> read_byt5(const std::string& folder,
                                           const HuggingFaceHints& hints) {
  constexpr int64_t kUsualSentinels = 125;
  constexpr const char* kSpecial[] = {"<pad>", "</s>", "<unk>"};
  constexpr int kBytes = 256;
  Json vocabulary = Json::object();
  std::vector<tokenizer_file::AddedToken> added;
  const auto add = [&](const std::string& token, bool strips) {
    added.push_back(
        {.id = std::ssize(vocabulary), .content = token, .lstrip = strips, .rstrip = strips});
    vocabulary[token] = vocabulary.size();
  };
  for (const char* token : kSpecial) add(token, /*strips=*/true);
  for (int byte = 0; byte < kBytes; ++byte) vocabulary[spelling_of(byte)] = vocabulary.size();
  for (int64_t i = 0; i < sentinels_of(folder, kUsualSentinels); ++i) {
    add(concat("<extra_id_", i, '>'), /*strips=*/false);
  }
  const Json bytes = tokenizer_file::byte_level(/*add_prefix_space=*/false, /*trim_offsets=*/true,
                                                /*use_regex=*/false);
  const tokenizer_file::FramePart end{kSpecial[1], 1};
  const std::string tokenizer = tokenizer_file::written(
      {.added_tokens = std::move(added),
       .pre_tokenizer = bytes,
       .post_processor = tokenizer_file::template_of({{"A"}, end}, {{"A"}, end, {"B"}, end}),
       .decoder = bytes,
       .model = tokenizer_file::BpeModel{.vocab = std::move(vocabulary)}.json()},
      /*indent=*/2);
  return made_of(folder, folder, tokenizer, hints);
}

// XLM-R's ids are fairseq's: four special tokens, then the file's pieces but for its own three, and
// the mask. CamemBERT's were trained with such a file, so that there are two sets of them.
template <bool camembert>
std::shared_ptr<const Tokenizer> read_fairseq(const std::string& folder,
                                              const HuggingFaceHints& hints) {
  const std::string path = concat(folder, '/', kFairseqPieces);
  const SentencePieceModel model = SentencePieceModel::parse(read_file(path), path);
  constexpr size_t kOwn = 3;
  if (model.algorithm != SentencePieceModel::kUnigram || model.pieces.size() < kOwn ||
      model.pieces[0].text != "<unk>") {
    fail(ErrorKind::kData, "[import] ", path,
         " must be a unigram model that begins with <unk>, as those of XLM-R and CamemBERT are.");
  }
  UnigramFile file{.charsmap = model.charsmap, .unk = 3};
  const auto special = [&](const char* text) {
    file.pieces.push_back({text, 0, SentencePieceModel::kControl});
  };
  if (camembert) {
    constexpr float kNever = -100;
    for (const char* text : {"<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"}) special(text);
    file.pieces.push_back({"<unk>NOTUSED", kNever, SentencePieceModel::kControl});
  } else {
    for (const char* text : {"<s>", "<pad>", "</s>", "<unk>"}) special(text);
  }
  const auto first = static_cast<std::ptrdiff_t>(camembert ? 1 : kOwn);
  file.pieces.insert(file.pieces.end(), model.pieces.begin() + first, model.pieces.end());
  special("<mask>");
  const auto id_of = [&](const char* text) {
    const auto found = std::ranges::find(file.pieces, text, &Piece::text);
    if (found == file.pieces.end()) {
      fail(ErrorKind::kData, "[import] ", path, " must have a piece ", text, '.');
    }
    return static_cast<int32_t>(found - file.pieces.begin());
  };
  file.before = {id_of("<s>")};
  file.after = {id_of("</s>")};
  file.between = {file.after[0], file.after[0]};
  return made_of(folder, path, unigram_json(file), hints);
}

// Codes of languages in the order of their ids.
constexpr std::string_view kM2m100Languages =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu "
    "ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms "
    "my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur "
    "uz vi wo xh yi yo zh zu";
constexpr std::string_view kWmt21Languages = "en ha is ja cs ru zh de";

// Languages stand behind the vocabulary, whose ids are not the pieces'.
std::shared_ptr<const Tokenizer> read_m2m100(const std::string& folder,
                                             const HuggingFaceHints& hints) {
  const std::string path = concat(folder, '/', kFairseqPieces), list = folder + "/vocab.json";
  nlohmann::json vocabulary =
      nlohmann::json::parse(read_file(list), nullptr, /*allow_exceptions=*/false);
  if (!vocabulary.is_object()) {
    fail(ErrorKind::kData, "[import] ", list, " is not a JSON object.");
  }
  const Json options = options_of(folder);
  std::string_view codes =
      text_of(options, "language_codes") == "wmt21" ? kWmt21Languages : kM2m100Languages;
  int64_t id = std::ssize(vocabulary);
  while (!codes.empty()) {
    const size_t end = std::min(codes.find(' '), codes.size());
    vocabulary[concat("__", codes.substr(0, end), "__")] = id++;
    codes.remove_prefix(std::min(end + 1, codes.size()));
  }
  const auto language = [&](const char* key) -> std::optional<int64_t> {
    const std::string code = text_of(options, key);
    if (code.empty()) return std::nullopt;
    const auto found = vocabulary.find(concat("__", code, "__"));
    if (found != vocabulary.end() && found->is_number_integer()) return found->get<int64_t>();
    fail(ErrorKind::kData, "[import] ", folder, "/tokenizer_config.json has ", key, " '", code,
         "', which is no language of its class.");
  };
  MarianFiles files{read_file(path), vocabulary.dump(), {}};
  files.ids = huggingface_ids(folder, list, files.vocabulary, hints);
  files.ids.language = language("src_lang").value_or(vocabulary["__en__"].get<int64_t>());
  files.ids.first = hints.first ? hints.first : language("tgt_lang");
  return load_tokenizer(join_marian(files), path);
}

bool always(const std::string&, const Json&) { return true; }

bool names_byt5(const std::string& folder, const Json& config) {
  return std::ranges::any_of(std::initializer_list<Json>{options_of(folder), config},
                             [](const Json& json) {
                               return text_of(json, "tokenizer_class").starts_with("ByT5Tokenizer");
                             });
}

struct PieceReader {
  const char* model_type;
  std::vector<const char*> files;
  std::shared_ptr<const Tokenizer> (*read)(const std::string& folder,
                                           const HuggingFaceHints& hints);
  bool (*fits)(const std::string& folder, const Json& config) = always;
};
// The first that fits reads.
const PieceReader kReaders[] = {
    {"t5", {"spiece.model"}, read_t5},
    {"t5", {}, read_byt5, names_byt5},
    {"mt5", {"spiece.model"}, read_t5},
    {"mt5", {}, read_byt5, names_byt5},
    {"xlm-roberta", {kFairseqPieces}, read_fairseq<false>},
    {"camembert", {kFairseqPieces}, read_fairseq<true>},
    {"m2m_100", {kFairseqPieces, "vocab.json"}, read_m2m100},
};

}  // namespace

std::shared_ptr<const Tokenizer> read_pieces(const std::string& folder,
                                             const nlohmann::ordered_json& config,
                                             const HuggingFaceHints& hints) {
  const std::string type = text_of(config, "model_type");
  for (const PieceReader& row : kReaders) {
    if (type != row.model_type || !row.fits(folder, config)) continue;
    if (std::ranges::all_of(row.files, [&](const char* file) { return has(folder, file); })) {
      return row.read(folder, hints);
    }
  }
  return nullptr;
}

}  // namespace tapestry::interop
