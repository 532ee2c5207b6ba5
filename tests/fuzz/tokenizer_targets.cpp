// Readers of tokenizers: ours, SentencePiece's, Hugging Face's in each of their forms, Marian's.
#include <filesystem>

#include "core/base/error.h"
#include "data/files/files.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/marian.h"
#include "data/tokenizers/special_words.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Seeds = std::vector<std::string>;

// Each Error is one answer of a tokenizer that was taken: it must give others.
template <class Use>
void may_refuse(const Use& use) {
  try {
    use();
  } catch (const Error&) {
  }
}

// What is done with a tokenizer once it is there.
void use(const Tokenizer& tokenizer) {
  for (const std::string_view text :
       {"", "The dog's 2 cats \xe2\x80\x93 ran!\n", "<mask> \xf0\x9f\x98\x80 e\xcc\x81 </s>"}) {
    may_refuse([&] {
      const std::vector<int32_t> ids = tokenizer.encode(text);
      for (const int32_t id : ids) {
        check(id >= 0 && id < tokenizer.vocab_size(), "fuzz", "id ", id, " is in no vocabulary.");
      }
      tokenizer.decode(ids);
    });
    may_refuse([&] { tokenizer.encode_continuation(text); });
    may_refuse([&] {
      for (const PlacedToken& token : tokenizer.encode_with_places(text)) {
        const bool fits =
            token.begin >= 0 && token.begin <= token.end && token.end <= std::ssize(text);
        if (!fits) throw std::logic_error("a token stands outside of its text");
      }
    });
  }
  for (const int64_t id : {int64_t{0}, int64_t{4}, tokenizer.vocab_size() - 1}) {
    may_refuse([&] {
      tokenizer.piece(static_cast<int32_t>(id));
      tokenizer.starts_word(static_cast<int32_t>(id));
      tokenizer.decode({static_cast<int32_t>(id)});
    });
  }
}

std::shared_ptr<const Tokenizer> trained(const std::string& type, const std::string& algorithm,
                                         int64_t vocab_size) {
  TokenizerOptions options;
  options.type = type;
  options.algorithm = algorithm;
  options.vocab_size = vocab_size;
  const char* const kLines[] = {"the cat sat on the mat", "a dog ate the bone of a cow",
                                "birds sing where the river bends", "who jumps quickly over it?"};
  size_t line = 0;
  const auto lines = [&](std::string& text) {
    text = kLines[line % std::size(kLines)];
    return line++ < 80;
  };
  return train_tokenizer(options, lines, 1);
}

void read_own(std::string_view bytes) { use(*load_tokenizer(std::string(bytes), "fuzzed")); }

Seeds pieces_seeds() {
  return {trained("sentencepiece", "bpe", 40)->serialized(),
          trained("sentencepiece", "unigram", 40)->serialized()};
}
Seeds char_seeds() { return {trained("char", "bpe", 40)->serialized()}; }

// ---- Hugging Face.

std::string empty_folder() {
  const std::string folder = fuzzed_folder() + "/tokenizer";
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}
void put(const char* name, std::string_view bytes) {
  fuzzed_file(bytes, (std::string("tokenizer/") + name).c_str());
}
void use_folder(const std::string& folder) {
  use(*load_tokenizer(read_huggingface(folder), "fuzzed"));
}

Seeds json_seeds() {
  Seeds seeds;
  for (const char* kind : {"bert", "gpt2", "llama2", "llama3", "pieces", "roberta", "unigram",
                           "unigram_bytes", "words"}) {
    seeds.push_back(read_file(
        project_file(std::string("tests/fixtures/tokenizers/") + kind + "/tokenizer.json")));
  }
  return seeds;
}
void read_json(std::string_view bytes) {
  const std::string folder = empty_folder();
  put("tokenizer.json", bytes);
  use_folder(folder);
}

// Two files, the first up to a zero byte.
Seeds vocab_seeds() {
  const std::string vocab =
      R"({"<s>":0,"</s>":1,"<unk>":2,"<pad>":3,"<mask>":4,"t":5,"h":6,"e":7,"th":8,"the":9})";
  return {vocab + '\0' + "#version: 0.2\nt h\nth e\n"};
}
void read_vocab(std::string_view bytes) {
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  const std::string folder = empty_folder();
  put("vocab.json", bytes.substr(0, cut));
  put("merges.txt", bytes.substr(std::min(cut + 1, bytes.size())));
  use_folder(folder);
}

Seeds vocab_txt_seeds() {
  return {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ndog\n##s\nt\n##h\n##e\n"};
}
void read_vocab_txt(std::string_view bytes) {
  const std::string folder = empty_folder();
  put("vocab.txt", bytes);
  use_folder(folder);
}

Seeds names_seeds() {
  return {R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
    "unk_token": "<unk>", "pad_token": null, "mask_token": "<mask>", "add_prefix_space": true,
    "do_lower_case": false, "added_tokens_decoder": {"4": {"content": "<mask>", "special": true}}})"};
}
void read_names(std::string_view bytes) {
  const std::string folder = empty_folder();
  const std::string vocab = vocab_seeds().front();
  put("vocab.json", vocab.substr(0, vocab.find('\0')));
  put("merges.txt", "#version: 0.2\nt h\n");
  put("tokenizer_config.json", bytes);
  use_folder(folder);
}

// ---- Marian.

Seeds marian_seeds() {
  static const Seeds seeds = [] {
    const auto pieces = trained("sentencepiece", "unigram", 40);
    std::string vocab = R"({"</s>": 0, "<unk>": 1)";
    int32_t next = 2;
    for (int32_t id = 4; id < pieces->vocab_size(); ++id) {
      vocab += ", \"" + pieces->piece(id) + "\": " + std::to_string(next++);
    }
    return Seeds{vocab + ", \"<pad>\": " + std::to_string(next) + '}'};
  }();
  return seeds;
}
void read_marian_vocabulary(std::string_view bytes) {
  static const std::string pieces = trained("sentencepiece", "unigram", 40)->serialized();
  const std::string folder = empty_folder();
  put("source.spm", pieces);
  put("target.spm", pieces);
  put("vocab.json", bytes);
  const TokenizerPair pair = read_marian(folder, {}, {});
  use(*pair.source);
}

constexpr FuzzTarget kTargets[] = {
    {"sentencepiece", pieces_seeds, read_own},
    {"characters", char_seeds, read_own},
    {"tokenizer_json", json_seeds, read_json},
    {"vocab_merges", vocab_seeds, read_vocab},
    {"vocab_txt", vocab_txt_seeds, read_vocab_txt},
    {"tokenizer_config", names_seeds, read_names},
    {"marian_vocab", marian_seeds, read_marian_vocabulary},
};

}  // namespace

std::span<const FuzzTarget> tokenizer_targets() { return kTargets; }

}  // namespace tapestry
