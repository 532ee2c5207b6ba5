#include "data/tokenizers/huggingface_files.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "data/files/utf8.h"
#include "data/tokenizers/parts/normalizers.h"
#include "data/tokenizers/parts/pre_tokenizers.h"
#include "data/tokenizers/special_words.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;
using testing::ElementsAre;
using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return project_file("tests/fixtures/tokenizers/" + name);
}

std::shared_ptr<const Tokenizer> load(const std::string& folder,
                                      const HuggingFaceHints& hints = {}) {
  return load_tokenizer(read_huggingface(folder, hints), folder);
}

// Trained and asked by the `tokenizers` wheel (tests/fixtures/train_tokenizers.py).
class HuggingFaceTokenizers : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer_ = load(fixture(GetParam()));
  OrderedJson cases_ = OrderedJson::parse(read_file(fixture(GetParam()) + "/cases.json"));
};
INSTANTIATE_TEST_SUITE_P(Kinds, HuggingFaceTokenizers,
                         testing::Values("gpt2", "roberta", "llama3", "llama2", "bert",
                                         "bert_cased", "unigram", "unigram_bytes", "words",
                                         "pieces"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(HuggingFaceTokenizers, GiveTheIdsOfTheWheel) {
  for (const OrderedJson& one : cases_) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text), one["ids"].get<Ids>()) << one["text"];
    EXPECT_EQ(tokenizer_->encode(text), one["ids"].get<Ids>()) << "once more " << one["text"];
    const Ids framed = in_frame(*tokenizer_->special().one_text, tokenizer_->encode(text));
    EXPECT_EQ(framed, one["whole"].get<Ids>()) << one["text"];
  }
}

// tests/fixtures/token_places.py. The wheel leaves white space out of the places of some kinds.
TEST_P(HuggingFaceTokenizers, GiveThePlacesOfTheWheel) {
  static const OrderedJson all =
      OrderedJson::parse(read_file(project_file("tests/fixtures/tokenizers/places.json")));
  for (const OrderedJson& one : all.at(GetParam())) {
    const auto text = one["text"].get<std::string>();
    const auto trimmed = [&](int64_t begin, int64_t end) {
      const std::string_view part = strip(std::string_view(text).substr(
          static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
      const int64_t at = part.empty() ? -1 : part.data() - text.data();
      return std::pair(at, part.empty() ? -1 : at + std::ssize(part));
    };
    Ids ids;
    std::vector<std::pair<int64_t, int64_t>> places, wanted;
    for (const PlacedToken& token : tokenizer_->encode_with_places(text)) {
      ids.push_back(token.id);
      places.push_back(trimmed(token.begin, token.end));
    }
    for (const OrderedJson& place : one["places"]) wanted.push_back(trimmed(place[0], place[1]));
    EXPECT_EQ(ids, one["ids"].get<Ids>()) << one["text"];
    ASSERT_EQ(places.size(), wanted.size()) << one["text"];
    // Characters that are normalised together are one place for us; for the wheel it is the first.
    bool together = false;
    for (const char* mark : {"\u0301", "\u0323", "\u1100"})
      together |= text.find(mark) != std::string::npos;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [begin, end] = wanted[i];
      if (begin < 0) continue;
      if (together) {
        EXPECT_LE(places[i].first, begin) << one["text"] << ' ' << i;
        EXPECT_GE(places[i].second, end) << one["text"] << ' ' << i;
      } else {
        EXPECT_EQ(places[i], wanted[i]) << one["text"] << ' ' << i;
      }
    }
  }
  for (const OrderedJson& one : cases_) {
    Ids ids;
    for (const PlacedToken& token :
         tokenizer_->encode_with_places(one["text"].get<std::string>())) {
      ids.push_back(token.id);
    }
    EXPECT_EQ(ids, one["ids"].get<Ids>()) << one["text"];
  }
}

TEST_P(HuggingFaceTokenizers, GiveTheTextsOfTheWheel) {
  for (const OrderedJson& one : cases_) {
    EXPECT_EQ(tokenizer_->decode(one["ids"].get<Ids>()), one["decoded"].get<std::string>())
        << one["text"];
  }
}

// tests/fixtures/named_tokens.py: what transformers makes of a tokenizer.json with neighbours.
TEST(HuggingFaceNeighbours, SayWhatATextBecomes) {
  const OrderedJson cases = OrderedJson::parse(read_file(fixture("named_tokens.json")));
  EXPECT_GT(cases.size(), 30u);
  for (const OrderedJson& one : cases) {
    const TempFolder folder;
    OrderedJson tokenizer =
        OrderedJson::parse(read_file(fixture(one["base"].get<std::string>() + "/tokenizer.json")));
    for (const auto& [file, content] : one["files"].items()) folder.write(file, content.dump());
    if (one["change"].contains("vocab.txt")) {
      std::map<int64_t, std::string> tokens;
      for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
        tokens[id.get<int64_t>()] = token;
      }
      std::string lines;
      for (const auto& [id, token] : tokens) lines += token + "\n";
      folder.write("vocab.txt", lines);
    } else {
      for (const auto& [pointer, value] : one["change"].items()) {
        tokenizer[OrderedJson::json_pointer(pointer)] = value;
      }
      folder.write("tokenizer.json", tokenizer.dump());
    }
    HuggingFaceHints hints;
    hints.model_type = one["model_type"].get<std::string>();
    hints.rows = 507;
    const auto made = load(folder.path("."), hints);
    std::vector<std::string> tokens;
    for (const int32_t id :
         in_frame(*made->special().one_text, made->encode(one["text"].get<std::string>()))) {
      tokens.push_back(made->piece(id));
    }
    EXPECT_EQ(tokens, one["tokens"].get<std::vector<std::string>>()) << one;
  }
}

// transformers takes such a folder, and fails at a text that has one of these tokens.
TEST(HuggingFaceNeighbours, TokensWithoutARowAreNone) {
  for (const char* base : {"gpt2", "bert", "unigram", "llama2", "words"}) {
    const TempFolder folder;
    OrderedJson tokenizer =
        OrderedJson::parse(read_file(fixture(std::string(base) + "/tokenizer.json")));
    folder.write("tokenizer.json", tokenizer.dump());
    folder.write("tokenizer_config.json", R"({"one_token": "<one>", "eos_token": "</s>"})");
    const auto whole = load(fixture(base));
    const int64_t rows = whole->vocab_size() - 40;
    std::vector<std::string> without_row;
    const auto cut = load_tokenizer(
        read_huggingface(folder.path("."), {.eos = 3, .rows = rows}, &without_row), base);
    EXPECT_EQ(cut->vocab_size(), rows) << base;
    EXPECT_GE(without_row.size(), 40u) << base;
    EXPECT_THAT(without_row, testing::Contains("<one>")) << base;
    for (const char* text : {"A man in a blue shirt", "the dog runs <one>", "caf\u00e9"}) {
      for (const int32_t id : cut->encode(text)) EXPECT_LT(id, rows) << base;
    }
  }
}

// An export writes these files: none may lie outside of its folder.
TEST(HuggingFaceNeighbours, FilesThatCameWithATokenizerStayInside) {
  const auto load_with = [](const std::string& name) {
    return load_tokenizers({{"tokenizer.txt", "tapestry characters 1\nU+0041\n"},
                            {"came_with.json", OrderedJson{{name, "{}"}}.dump()}});
  };
  for (const char* name : {"../a", "/a", "a/b/c", "a/../b", "a/.b", ".a", "a/", "", "a\\b"}) {
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { load_with(name); }),
                HasSubstr(concat("names '", name, "'")));
  }
  EXPECT_EQ(load_with("1_Pooling/config.json").came_with.size(), 1u);
}

// What the wheel 0.23.3 makes of matches without characters.
TEST(HuggingFaceParts, CutWhereAnEmptyMatchIs) {
  using Pieces = std::vector<std::string>;
  const auto cut = [](const char* expression, const char* behavior, const char* text) {
    const nlohmann::json json = {
        {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", behavior}};
    std::vector<tokenizers::PlacedText> pieces = {tokenizers::PlacedText(text)};
    tokenizers::make_pre_tokenizer(tokenizers::Part(json, "here")).cut(pieces, {});
    Pieces texts;
    for (const auto& piece : pieces) texts.push_back(piece.text);
    return texts;
  };
  EXPECT_EQ(cut(R"((?=(\d{3})+(?!\d)))", "Isolated", "1234567 a"), (Pieces{"1", "234", "567 a"}));
  EXPECT_EQ(cut(R"((?<=\d))", "Isolated", "12 a1b2"), (Pieces{"1", "2", " a1", "b2"}));
  EXPECT_EQ(cut("x*", "Isolated", "xxaxb"), (Pieces{"xx", "a", "x", "b"}));
  EXPECT_EQ(cut("x*", "Isolated", "\u00e9y"), (Pieces{"\u00e9", "y"}));
  for (const char* behavior :
       {"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Removed"}) {
    EXPECT_EQ(cut("(?=[A-Z])", behavior, "ABcD"), (Pieces{"A", "Bc", "D"})) << behavior;
  }
  const auto replaced = [](const char* expression, const char* text) {
    const nlohmann::json json = {
        {"type", "Replace"}, {"pattern", {{"Regex", expression}}}, {"content", "_"}};
    tokenizers::PlacedText result(text);
    tokenizers::make_normalizer(tokenizers::Part(json, "here"))(result, false);
    return result.text;
  };
  EXPECT_EQ(replaced("^", "ab a"), "_ab a");
  EXPECT_EQ(replaced("$", "ab a"), "ab a_");
  EXPECT_EQ(replaced(R"(\b)", "ab a"), "_ab_ _a_");
  EXPECT_EQ(replaced("(?<=a)", "ab a"), "a_b a_");
  EXPECT_EQ(replaced("^", ""), "");
}

// A checkpoint keeps the file as it came.
TEST_P(HuggingFaceTokenizers, ComeBackFromACheckpoint) {
  const auto files = TokenizerPair{tokenizer_, tokenizer_}.files();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files.at("tokenizer.json"), read_file(fixture(GetParam()) + "/tokenizer.json"));
  for (const auto& [name, bytes] : files) EXPECT_THAT(kTokenizerFileNames, testing::Contains(name));
  const TokenizerPair again = load_tokenizers(files);
  EXPECT_TRUE(again.shared());
  EXPECT_EQ(again.source->serialized(), tokenizer_->serialized());
  EXPECT_EQ(again.source->special().eos, tokenizer_->special().eos);
}

// Each ill-formed byte is read as U+FFFD.
TEST_P(HuggingFaceTokenizers, IllFormedBytesAreReplacementCharacters) {
  EXPECT_EQ(tokenizer_->encode("a\xC3 \xFF\xE2\x82z"),
            tokenizer_->encode("a\uFFFD \uFFFD\uFFFD\uFFFDz"));
}

TEST(HuggingFaceIds, AreThoseOfEachKind) {
  const auto gpt2 = load(fixture("gpt2"));
  EXPECT_EQ(gpt2->special().bos, 0);
  EXPECT_EQ(gpt2->special().eos, 0);
  EXPECT_FALSE(gpt2->special().pad);
  EXPECT_FALSE(gpt2->special().unk);
  EXPECT_TRUE(gpt2->special().document().empty());  // its frame is
  EXPECT_TRUE(gpt2->special().prompt_of(Ids{5}).empty());
  EXPECT_THAT(gpt2->special().prompt_of({}), ElementsAre(0));
  EXPECT_THAT(gpt2->special().border(), ElementsAre(0));
  EXPECT_TRUE(gpt2->special().border(Ids{5, 0}, Ids{6}).empty());
  EXPECT_TRUE(gpt2->special().banned().empty());
  const auto roberta = load(fixture("roberta"));
  EXPECT_EQ(roberta->special().pad, 1);
  EXPECT_EQ(roberta->mask_id(), 4);
  EXPECT_THAT(roberta->special().masked().before, ElementsAre(0));
  EXPECT_THAT(roberta->special().masked().after, ElementsAre(2));
  EXPECT_THAT(roberta->special().question().between, ElementsAre(2, 2));
  const auto bert = load(fixture("bert"));
  EXPECT_EQ(bert->special().bos, 2);
  EXPECT_EQ(bert->special().eos, 3);
  EXPECT_EQ(bert->special().unk, 1);
  EXPECT_THAT(bert->special().border(), ElementsAre(3));
  const auto llama = load(fixture("llama2"));
  EXPECT_THAT(llama->special().border(), ElementsAre(2, 1));
  EXPECT_THAT(llama->special().border(Ids{5}, Ids{1, 6}), ElementsAre(2));
  EXPECT_THAT(llama->special().border(Ids{5, 2}, Ids{6}), ElementsAre(1));
  EXPECT_THAT(llama->special().prompt_of(Ids{5}), ElementsAre(1));
  EXPECT_TRUE(llama->special().prompt_of(Ids{1, 5}).empty());
  EXPECT_THAT(load(fixture("unigram"), {.start = 0})->special().start, 0);
  // A translation begins with a language, where texts begin with another one.
  EXPECT_THAT(load(fixture("roberta"), {.first = 9})->special().target().before, ElementsAre(9));
  EXPECT_THAT(roberta->special().target().before, ElementsAre(0));
  // A model may have more rows than there are tokens; no search writes those.
  const auto more = load(fixture("gpt2"), {.pad = 3, .rows = 502});
  EXPECT_EQ(more->vocab_size(), 502);
  EXPECT_THAT(more->special().banned(), ElementsAre(3, 500, 501));
  EXPECT_EQ(more->piece(501), "<unused_501>");
  EXPECT_TRUE(more->is_special(501));
  EXPECT_EQ(more->decode({501}), "");
}

// Several tokens end what is written; none of them is banned, and none has a row that is not there.
TEST(HuggingFaceIds, KnowAllEnds) {
  const auto gpt2 = load(fixture("gpt2"), {.pad = 3, .ends = {0, 3, 7}, .rows = 502});
  EXPECT_THAT(gpt2->special().more_ends, ElementsAre(3, 7));
  EXPECT_TRUE(gpt2->special().is_end(0));
  EXPECT_TRUE(gpt2->special().is_end(7));
  EXPECT_FALSE(gpt2->special().is_end(5));
  EXPECT_THAT(gpt2->special().banned(), ElementsAre(500, 501));
  const auto again = load_tokenizer(gpt2->serialized(), "again");
  EXPECT_THAT(again->special().more_ends, ElementsAre(3, 7));
  EXPECT_TRUE(again->special().frames_once);
}

// Checkpoints from before have no word of it: their models learnt with a beginning of ours.
TEST(HuggingFaceIds, OlderOnesKeepTheirFrames) {
  const HuggingFaceFiles files = split_huggingface(load(fixture("gpt2"))->serialized(), "gpt2");
  const auto older = load_tokenizer(
      join_huggingface(
          files.tokenizer,
          R"({"pad":null,"unk":null,"bos":0,"eos":0,"mask":null,"start":null,"rows":0})"),
      "older");
  EXPECT_THAT(older->special().document(), ElementsAre(0));
  EXPECT_THAT(older->special().beginning_of(Ids{0, 5}), ElementsAre(0));
  EXPECT_TRUE(older->special().prompt_of(Ids{5}).empty());
  const auto newer = load(fixture("gpt2"));
  EXPECT_NO_THROW(check_same_vocabulary({older, older}, "older", {newer, newer}, "newer"));
}

// A token that an added vocabulary has beyond the model's rows is text.
TEST(HuggingFaceIds, TokensWithoutARowAreText) {
  OrderedJson file = OrderedJson::parse(read_file(fixture("gpt2") + "/tokenizer.json"));
  OrderedJson token = file["added_tokens"][0];
  token["id"] = 500;
  token["content"] = "<more>";
  file["added_tokens"].push_back(token);
  const auto with_rows = [&](int64_t rows) {
    HuggingFaceIds ids;
    ids.rows = rows;
    return load_tokenizer(join_huggingface(file.dump(), ids.json()), "gpt2");
  };
  EXPECT_EQ(with_rows(501)->encode("<more>"), (Ids{500}));
  EXPECT_EQ(with_rows(500)->encode("<more>"), load(fixture("gpt2"))->encode("<more>"));
}

// GPT-2's and BERT's older files say the same as tokenizer.json.
TEST(HuggingFaceFiles, OlderOnesMakeTheSameTokenizer) {
  const std::string folder = concat(testing::TempDir(), "/older_tokenizer.", getpid());
  for (const char* name : {"gpt2", "bert"}) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    const OrderedJson file = OrderedJson::parse(read_file(fixture(name) + "/tokenizer.json"));
    const OrderedJson& model = file["model"];
    if (model["type"] == "BPE") {
      write_file(folder + "/vocab.json", model["vocab"].dump());
      std::string merges = "#version: 0.2\n";
      for (const OrderedJson& merge : model["merges"]) {
        merges += merge[0].get<std::string>() + ' ' + merge[1].get<std::string>() + '\n';
      }
      write_file(folder + "/merges.txt", merges);
    } else {
      std::vector<std::string> tokens(model["vocab"].size());
      for (const auto& [token, id] : model["vocab"].items()) tokens[id.get<size_t>()] = token;
      std::string lines;
      for (const std::string& token : tokens) lines += token + '\n';
      write_file(folder + "/vocab.txt", lines);
    }
    const auto older = load(folder);
    for (const OrderedJson& one : OrderedJson::parse(read_file(fixture(name) + "/cases.json"))) {
      EXPECT_EQ(older->encode(one["text"].get<std::string>()), one["ids"].get<Ids>())
          << one["text"];
      EXPECT_EQ(in_frame(*older->special().one_text, older->encode(one["text"].get<std::string>())),
                one["whole"].get<Ids>());
    }
  }
  fs::remove_all(folder);
}

TEST(HuggingFaceFiles, LinesThatAreNoTextAreNamed) {
  const std::string folder = concat(testing::TempDir(), "/ill_formed_tokenizer.", getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  write_file(folder + "/vocab.txt", "[PAD]\n[UNK]\n\xff\n");
  EXPECT_EQ(error_of(ErrorKind::kData, [&] { load(folder); }),
            concat("[tokenizer] ", folder, "/vocab.txt:3 is not UTF-8."));
  fs::remove(folder + "/vocab.txt");
  write_file(folder + "/vocab.json", R"({"<s>": 0, "</s>": 1, "a": 2})");
  write_file(folder + "/merges.txt", "#version: 0.2\na \x80\n");
  EXPECT_EQ(error_of(ErrorKind::kData, [&] { load(folder); }),
            concat("[tokenizer] ", folder, "/merges.txt:2 is not UTF-8."));
  fs::remove_all(folder);
}

TEST(HuggingFaceFiles, TheTokensThatFilesNameGoFirst) {
  const std::string folder = concat(testing::TempDir(), "/named_tokenizer.", getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(fixture("gpt2") + "/tokenizer.json", folder + "/tokenizer.json");
  write_file(folder + "/tokenizer_config.json",
             R"({"bos_token": {"content": "a"}, "pad_token": "b", "eos_token": null})");
  write_file(folder + "/special_tokens_map.json", R"({"bos_token": "c", "eos_token": "c"})");
  const auto tokenizer = load(folder, {.pad = 1, .bos = 2, .eos = 3});
  EXPECT_EQ(tokenizer->piece(tokenizer->special().bos), "a");
  EXPECT_EQ(tokenizer->piece(tokenizer->special().eos), "c");
  EXPECT_EQ(tokenizer->piece(*tokenizer->special().pad), "b");
  fs::remove_all(folder);
}

TEST(HuggingFaceFiles, WhatIsNotKnownIsRefusedWithItsPlace) {
  const OrderedJson file = OrderedJson::parse(read_file(fixture("llama3") + "/tokenizer.json"));
  const auto error_with = [&](const char* pointer, const OrderedJson& value) {
    OrderedJson changed = file;
    changed[OrderedJson::json_pointer(pointer)] = value;
    return error_of(ErrorKind::kData, [&] {
      load_tokenizer(join_huggingface(changed.dump(), R"({"bos": 0, "eos": 1})"), "t.json");
    });
  };
  EXPECT_THAT(error_with("/pre_tokenizer/pretokenizers/0/type", "UnicodeScripts"),
              HasSubstr("t.json.pre_tokenizer.pretokenizers[0] is of the unknown type "
                        "UnicodeScripts"));
  EXPECT_THAT(error_with("/normalizer", {{"type", "Nmt"}}),
              HasSubstr("t.json.normalizer is of the unknown type Nmt"));
  EXPECT_THAT(error_with("/model/wonder", 1), HasSubstr("t.json.model has the unknown key wonder"));
  EXPECT_THAT(error_with("/model/dropout", 0.1), HasSubstr("must have no dropout"));
  EXPECT_THAT(error_with("/decoder/type", "CTC"),
              HasSubstr("t.json.decoder is of the unknown type CTC"));
  EXPECT_THAT(error_with("/pre_tokenizer/pretokenizers/0/pattern", {{"Regex", "(a"}}),
              HasSubstr("has the expression '(a', which cannot be used"));
  EXPECT_THAT(error_with("/model/merges/0", "a"), HasSubstr("has the merge 'a'"));
  EXPECT_THAT(
      error_of(ErrorKind::kData,
               [&] { load_tokenizer(join_huggingface(file.dump(), R"({"bos": 0})"), "t.json"); }),
      HasSubstr("the ids of t.json lack eos"));
  EXPECT_THAT(
      error_of(
          ErrorKind::kData,
          [&] { load_tokenizer(join_huggingface("[1]", R"({"bos": 0, "eos": 1})"), "t.json"); }),
      HasSubstr("t.json must be an object"));
}

TEST(HuggingFaceFiles, DeepOnesAreRefused) {
  const TempFolder folder;
  const auto error = [&](const std::string& model) {
    const std::string path = folder.write("tokenizer.json", "{\"model\": " + model + "}");
    return error_of(ErrorKind::kData, [&] { load(path); });
  };
  const std::string deep(100000, '[');
  EXPECT_THAT(error(deep + std::string(deep.size(), ']')),
              HasSubstr("tokenizer.json is nested more than 64 levels deep at byte 73."));
  EXPECT_THAT(error("\"" + deep + "\\\"[\""), testing::Not(HasSubstr("nested")));
}

TEST(HuggingFaceFiles, AConfigMayNameATokenizer) {
  TokenizerOptions options;
  options.type = "huggingface";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { options.validate(); }), HasSubstr("path"));
  options.path = fixture("roberta") + "/tokenizer.json";
  options.mask_piece = true;
  EXPECT_EQ(read_tokenizer(options)->mask_id(), 4);
  EXPECT_EQ(with_special_words(read_tokenizer(options))->encode("a <mask>"),
            read_tokenizer(options)->encode("a <mask>"));
  // BERT calls it otherwise, and a decoded text shows it.
  const auto bert = load(fixture("bert"));
  const auto words = with_special_words(bert);
  EXPECT_EQ(words->encode("a <mask> man"), bert->encode("a [MASK] man"));
  EXPECT_THAT(words->decode(words->encode("a <mask> man")), HasSubstr("[MASK]"));
}

// A vocabulary of whole words, as the wheel 0.23.3 writes it and reads these texts.
TEST(HuggingFaceWordLevel, GivesTheIdsPlacesAndTextsOfTheWheel) {
  const TempFolder folder;
  folder.write("tokenizer.json",
               R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],)"
               R"("normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},)"
               R"("post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":)"
               R"({"[UNK]":0,"[PAD]":1,"[EOS]":2,"hello":3,",":4,"world":5,"über":6},)"
               R"("unk_token":"[UNK]"}})");
  const auto tokenizer = load(folder.path("."), {.pad = 1, .bos = 2, .eos = 2});
  const std::string text = "hello Über-world ,x";
  EXPECT_EQ(tokenizer->encode("Hello, world"), (Ids{3, 4, 5}));
  EXPECT_EQ(tokenizer->encode(text), (Ids{3, 6, 0, 5, 4, 0}));
  EXPECT_EQ(tokenizer->encode("hello\u3000WORLD"), (Ids{3, 5}));
  EXPECT_EQ(tokenizer->decode({3, 4, 5}), "hello , world");
  // The wheel counts characters, we count bytes: one of them is two.
  const auto places = tokenizer->encode_with_places(text);
  ASSERT_EQ(places.size(), 6u);
  EXPECT_EQ(places[1].end, 11);
  EXPECT_EQ(places[3].end, 17);
  EXPECT_TRUE(tokenizer->starts_word(5));
  EXPECT_EQ(tokenizer->special().unk, 0);
}

}  // namespace
}  // namespace tapestry
