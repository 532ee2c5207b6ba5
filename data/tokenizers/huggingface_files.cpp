#include "data/tokenizers/huggingface_files.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "data/files/files.h"
#include "data/files/utf8.h"
#include "data/tokenizers/named_tokens.h"
#include "data/tokenizers/parts/written_file.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;  // an ordered one looks through all keys for each
using tokenizer_file::AddedToken;

constexpr std::string_view kHuggingFaceHeader = "tapestry tokenizer.json 1\n";

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    if (find_invalid_utf8(lines.back()) != std::string::npos) {
      fail(ErrorKind::kData, "[tokenizer] ", path, ':', lines.size(), " is not UTF-8.");
    }
    at = end + 1;
  }
  return lines;
}

class Vocabulary {
 public:
  explicit Vocabulary(const Json& tokenizer) : ids_(token_ids(tokenizer)) {}

  std::optional<int64_t> find(const std::string& token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::unordered_map<std::string, int64_t> ids_;
};

// Those of the tokens that the vocabulary has.
std::vector<AddedToken> added_tokens(const Json& vocab, const std::vector<std::string>& tokens) {
  std::vector<AddedToken> list;
  for (const std::string& token : tokens) {
    const auto id = vocab.find(token);
    if (id == vocab.end() || !id->is_number_integer()) continue;
    list.push_back({.id = id->get<int64_t>(), .content = token, .lstrip = token == "<mask>"});
  }
  std::ranges::sort(list, {},
                    [](const AddedToken& token) { return std::pair(token.id, token.content); });
  return list;
}

std::vector<std::string> named(const NamedTokens& names, std::vector<std::string> usual) {
  for (const char* role : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
    const std::string token = names.find(role);
    if (!token.empty()) usual.push_back(token);
  }
  std::sort(usual.begin(), usual.end());
  usual.erase(std::unique(usual.begin(), usual.end()), usual.end());
  return usual;
}

// [token, id]
tokenizer_file::Json with_id(const Json& vocab, const std::string& token) {
  return {token, vocab.at(token)};
}

// BERT's files: a token a line.
std::string from_vocab_txt(const std::string& folder, const NamedTokens& names) {
  Json vocab = Json::object();
  const std::vector<std::string> lines = lines_of(folder + "/vocab.txt");
  for (size_t id = 0; id < lines.size(); ++id) vocab[lines[id]] = id;
  const auto flag = [&](const char* key, bool fallback) {
    const auto found = names.config().find(key);
    return found != names.config().end() && found->is_boolean() ? found->get<bool>() : fallback;
  };
  const Json strips = names.config().value("strip_accents", Json());
  tokenizer_file::Json post;
  if (vocab.contains("[CLS]") && vocab.contains("[SEP]")) {
    post = {{"type", "BertProcessing"},
            {"sep", with_id(vocab, "[SEP]")},
            {"cls", with_id(vocab, "[CLS]")}};
  }
  return tokenizer_file::written(
      {.added_tokens =
           added_tokens(vocab, named(names, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})),
       .normalizer = {{"type", "BertNormalizer"},
                      {"clean_text", true},
                      {"handle_chinese_chars", flag("tokenize_chinese_chars", true)},
                      {"strip_accents", strips.is_boolean() ? strips : Json()},
                      {"lowercase", flag("do_lower_case", true)}},
       .pre_tokenizer = {{"type", "BertPreTokenizer"}},
       .post_processor = post,
       .decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
       .model = {{"type", "WordPiece"},
                 {"unk_token", "[UNK]"},
                 {"continuing_subword_prefix", "##"},
                 {"max_input_chars_per_word", 100},
                 {"vocab", vocab}}});
}

// GPT-2's files; with <s> and </s> in the vocabulary they are RoBERTa's.
std::string from_vocab_json(const std::string& folder, const NamedTokens& names) {
  const Json vocab =
      parse_tokenizer_object(read_file(folder + "/vocab.json"), folder + "/vocab.json");
  tokenizer_file::Json merges = Json::array();
  for (const std::string& line : lines_of(folder + "/merges.txt")) {
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  const Json prefix = names.config().value("add_prefix_space", Json());
  const bool spaced = prefix.is_boolean() && prefix.get<bool>();
  const tokenizer_file::Json bytes =
      tokenizer_file::byte_level(spaced, /*trim_offsets=*/true, /*use_regex=*/true);
  tokenizer_file::Json post = bytes;
  if (vocab.contains("<s>") && vocab.contains("</s>")) {
    post = {{"type", "RobertaProcessing"},
            {"sep", with_id(vocab, "</s>")},
            {"cls", with_id(vocab, "<s>")},
            {"trim_offsets", true},
            {"add_prefix_space", spaced}};
  }
  return tokenizer_file::written(
      {.added_tokens = added_tokens(
           vocab, named(names, {"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"})),
       .pre_tokenizer = bytes,
       .post_processor = post,
       .decoder = bytes,
       .model = tokenizer_file::BpeModel{.vocab = vocab, .merges = merges}.json()});
}

// The bytes of the folder's tokenizer.json, or of one that its other files make.
std::string tokenizer_of(const std::string& folder, const NamedTokens& names) {
  const auto has = [&](const char* name) { return fs::is_regular_file(folder + "/" + name); };
  if (has("tokenizer.json")) return read_file(folder + "/tokenizer.json");
  if (has("vocab.json") && has("merges.txt")) return from_vocab_json(folder, names);
  if (has("vocab.txt")) return from_vocab_txt(folder, names);
  fail(ErrorKind::kData, "[tokenizer] ", folder,
       " must have tokenizer.json, vocab.json with merges.txt, or vocab.txt.");
}

HuggingFaceIds find_ids(const Vocabulary& vocabulary, const NamedTokens& names,
                        const HuggingFaceHints& hints, const std::string& folder) {
  const auto id_of = [&](const char* role) {
    const std::string token = names.find(role);
    return token.empty() ? std::nullopt : vocabulary.find(token);
  };
  const auto first_of = [](std::initializer_list<std::optional<int64_t>> ids) {
    for (const auto& id : ids) {
      if (id) return id;
    }
    return std::optional<int64_t>();
  };
  const auto usual = [&](std::initializer_list<const char*> tokens) {
    for (const char* token : tokens) {
      if (const auto id = vocabulary.find(token)) return id;
    }
    return std::optional<int64_t>();
  };
  HuggingFaceIds ids;
  ids.pad = first_of({id_of("pad"), hints.pad, usual({"<pad>", "[PAD]"})});
  ids.unk = first_of({id_of("unk"), usual({"<unk>", "[UNK]"})});
  ids.mask = first_of({id_of("mask"), usual({"<mask>", "[MASK]"})});
  // Tokens around texts of a masked model: the usual ones go before those of config.json's class.
  const auto cls = usual({"[CLS]"}), sep = usual({"[SEP]"});
  const auto bos = first_of({id_of("bos"), id_of("cls"), cls, hints.bos,
                             usual({"<s>", "<|begin_of_text|>", "<|endoftext|>"})});
  const auto eos = first_of({id_of("eos"), id_of("sep"), sep, hints.eos,
                             usual({"</s>", "<|end_of_text|>", "<|endoftext|>"})});
  // Without an end token the begin token ends a text, and the other way round; decoders of T5's
  // kind begin with pad.
  const auto begin = first_of({bos, hints.start, ids.pad, eos}), end = first_of({eos, bos});
  if (!end) {
    fail(ErrorKind::kData, "[tokenizer] ", folder,
         " does not tell which token ends a text: tokenizer_config.json must name its eos_token, "
         "sep_token or bos_token.");
  }
  ids.bos = *begin;
  ids.eos = *end;
  ids.start = hints.start;
  ids.first = hints.first;
  if (const std::string language = names.target_language(); !ids.first && !language.empty()) {
    // mBART's decoder begins with the language itself.
    const auto id = vocabulary.find(language);
    if (id && id != hints.start) ids.first = id;
  }
  ids.rows = hints.rows;
  for (const int64_t end : hints.ends) {
    const bool known = end == ids.eos || std::ranges::find(ids.ends, end) != ids.ends.end();
    if (!known) ids.ends.push_back(end);
  }
  ids.frames_once = true;
  return ids;
}

}  // namespace

std::string HuggingFaceIds::json() const {
  const auto number = [](const std::optional<int64_t>& id) { return id ? Json(*id) : Json(); };
  Json json{{"pad", number(pad)},   {"unk", number(unk)},     {"bos", bos},  {"eos", eos},
            {"mask", number(mask)}, {"start", number(start)}, {"rows", rows}};
  // Older checkpoints lack it, and their bytes must stay the same.
  if (first) json["first"] = *first;
  if (language) json["language"] = *language;
  if (!ends.empty()) json["ends"] = ends;
  if (frames_once) json["frames_once"] = true;
  return json.dump();
}

HuggingFaceIds HuggingFaceIds::parse(const std::string& text, const std::string& name) {
  const Json json = parse_tokenizer_object(text, concat("the ids of ", name));
  const auto read = [&](const char* key) -> std::optional<int64_t> {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return std::nullopt;
    if (!found->is_number_integer()) {
      fail(ErrorKind::kData, "[tokenizer] the ids of ", name, " must have a number as ", key, '.');
    }
    return found->get<int64_t>();
  };
  const auto needed = [&](const char* key) {
    const auto id = read(key);
    if (!id) fail(ErrorKind::kData, "[tokenizer] the ids of ", name, " lack ", key, '.');
    return *id;
  };
  std::vector<int64_t> ends;
  if (const auto found = json.find("ends"); found != json.end()) {
    const bool numbers = found->is_array() && std::ranges::all_of(*found, [](const Json& id) {
                           return id.is_number_integer();
                         });
    if (!numbers) {
      fail(ErrorKind::kData, "[tokenizer] the ids of ", name, " must have numbers as ends.");
    }
    found->get_to(ends);
  }
  const HuggingFaceIds ids = {.pad = read("pad"),
                              .unk = read("unk"),
                              .mask = read("mask"),
                              .start = read("start"),
                              .first = read("first"),
                              .language = read("language"),
                              .bos = needed("bos"),
                              .eos = needed("eos"),
                              .rows = read("rows").value_or(0),
                              .ends = std::move(ends),
                              .frames_once = json.value("frames_once", Json()) == true};
  constexpr int64_t kMostRows = int64_t{1} << 24;
  if (ids.rows < 0 || ids.rows > kMostRows) {
    fail(ErrorKind::kData, "[tokenizer] the ids of ", name, " have ", ids.rows, " rows.");
  }
  return ids;
}

std::string join_huggingface(const std::string& tokenizer, const std::string& ids) {
  // A single line, so that it can be told from the rest.
  const Json line = Json::parse(ids, nullptr, /*allow_exceptions=*/false);
  return std::string(kHuggingFaceHeader) + line.dump() + "\n" + tokenizer;
}

HuggingFaceFiles split_huggingface(const std::string& bytes, const std::string& name) {
  const size_t end = std::min(bytes.find('\n', kHuggingFaceHeader.size()), bytes.size() - 1);
  return {bytes.substr(end + 1),
          HuggingFaceIds::parse(
              bytes.substr(kHuggingFaceHeader.size(), end - kHuggingFaceHeader.size()), name)};
}

bool is_huggingface(const std::string& bytes) { return bytes.starts_with(kHuggingFaceHeader); }

std::string read_huggingface(const std::string& path, const HuggingFaceHints& hints,
                             std::vector<std::string>* without_row) {
  const fs::path given(path);
  const std::string folder = fs::is_directory(given)   ? path
                             : given.has_parent_path() ? given.parent_path().string()
                                                       : ".";
  const NamedTokens names(folder, hints.model_type);
  if (names.config().value("split_special_tokens", Json()) == true) {
    fail(ErrorKind::kData, "[tokenizer] ", folder,
         "/tokenizer_config.json: split_special_tokens is "
         "true: texts there have no special tokens, and here '</s>' in a text would be one.");
  }
  std::string file = fs::is_directory(given) ? tokenizer_of(folder, names) : read_file(path);
  Json tokenizer = parse_tokenizer_object(file, path);
  // A checkpoint of ours knows its ids.
  const std::string own = folder + "/tokenizer_ids.json";
  if (fs::is_regular_file(own)) return join_huggingface(file, read_file(own));
  const Json before = tokenizer;
  names.apply(tokenizer);
  if (hints.rows > 0) {
    std::vector<std::string> dropped = drop_tokens_without_row(tokenizer, hints.rows);
    if (without_row != nullptr) *without_row = std::move(dropped);
  }
  if (tokenizer != before) file = tokenizer.dump(2) + "\n";
  return join_huggingface(file, find_ids(Vocabulary(tokenizer), names, hints, folder).json());
}

HuggingFaceIds huggingface_ids(const std::string& folder, const std::string& path,
                               const std::string& vocabulary, const HuggingFaceHints& hints) {
  const Json tokenizer = {{"model", {{"vocab", parse_tokenizer_object(vocabulary, path)}}}};
  return find_ids(Vocabulary(tokenizer), NamedTokens(folder, hints.model_type), hints, folder);
}

bool has_huggingface_tokenizer(const std::string& folder) {
  const auto has = [&](const char* name) { return fs::is_regular_file(folder + "/" + name); };
  return has("tokenizer.json") || (has("vocab.json") && has("merges.txt")) || has("vocab.txt");
}

}  // namespace tapestry
