// tapestry translate --markup and --copy-unknown: what a translation gets back from its source.
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <sstream>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

class MarkupTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("markup");
    const std::vector<std::string> longer = {"training.max_steps=120"};
    EXPECT_EQ(folder_->train("translation", "one", longer), 0) << folder_->messages();
    EXPECT_EQ(folder_->train("translation", "two", {"training.max_steps=120", "seed=2"}), 0);
    EXPECT_EQ(folder_->run("shortlist --model one --output list").code, 0);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static Lines translate(const std::string& options, const std::string& input) {
    return lines_of(folder_->output(concat("translate --model one ", options), input));
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> MarkupTest::folder_;

const std::string kMarked =
    "<g id=\"1\">ba <b>ce</b></g> di<x id=\"2\"/>\n"
    "lo <i>mu</i> ha<br/> ba\n"
    "<x/>\n"
    "\n"
    "fo & <\n";
const std::string kPlain = "ba ce di\nlo mu ha ba\n\n\nfo & <\n";

// The text without tags, and these.
std::pair<std::string, Lines> parted(const std::string& line) {
  std::string text;
  Lines tags;
  for (size_t i = 0; i < line.size(); ++i) {
    const size_t end = line[i] == '<' ? line.find('>', i) : std::string::npos;
    if (end == std::string::npos) {
      text += line[i];
    } else {
      tags.push_back(line.substr(i, end + 1 - i));
      i = end;
    }
  }
  std::ranges::sort(tags);
  return {text, tags};
}

void expect_same_but_for_tags(const Lines& marked, const Lines& plain, size_t n_best) {
  const Lines sources = lines_of(kMarked);
  ASSERT_EQ(marked.size(), plain.size());
  ASSERT_EQ(marked.size(), sources.size() * n_best);
  for (size_t i = 0; i < marked.size(); ++i) {
    const auto [text, tags] = parted(marked[i]);
    EXPECT_EQ(text, plain[i]) << marked[i];
    const Lines expected = parted(sources[i / n_best]).second;
    EXPECT_EQ(tags, plain[i].empty() && i % n_best > 0 ? tags : expected) << marked[i];
  }
  EXPECT_EQ(marked[2 * n_best], "<x/>");
}

TEST_F(MarkupTest, EachTagComesOutOnceAndTheRestIsTheTranslation) {
  for (const char* const options :
       {"", "--beam-size 1", "--beam-size 4 --n-best 3", "--weights int8 --beam-size 1",
        "--shortlist list --shortlist-size 5", "--model two", "--threads 1 --batch-size 1",
        "--do-sample --seed 3", "--copy-unknown", "--mbr 3"}) {
    SCOPED_TRACE(options);
    const size_t n_best = std::string_view(options).find("n-best") == std::string::npos ? 1 : 3;
    expect_same_but_for_tags(translate(concat("--markup xml ", options), kMarked),
                             translate(options, kPlain), n_best);
  }
}

// Each word of a sentence in a pair of its own: a word of the translation that is aligned with one
// only, in all of its tokens, stands in its pair.
TEST_F(MarkupTest, PairsFollowTheirWords) {
  const Lines sentences = lines_of(read_file(folder_->path("valid.src")));
  std::string plain, marked;
  for (const std::string& sentence : sentences) {
    plain += sentence + '\n';
    std::istringstream words(sentence);
    std::string word;
    for (int i = 0; words >> word; ++i) {
      marked += concat(i > 0 ? " " : "", "<w", i, ">", word, "</w", i, ">");
    }
    marked += '\n';
  }
  const Lines aligned = translate("--alignments - --detail jsonl", plain);
  const Lines found = translate("--markup xml", marked);
  int checked = 0;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const Json translation = Json::parse(aligned[i])["translations"][0];
    EXPECT_EQ(parted(found[i]).first, translation["text"].get<std::string>());
    std::map<int, std::vector<int>> sources;
    for (const auto& pair : translation["alignment"]) sources[pair[1]].push_back(pair[0]);
    std::istringstream words(translation["text"].get<std::string>());
    std::string word;
    size_t at = 0;
    for (int t = 0; words >> word; ++t) {
      at = found[i].find(word, at);
      if (sources[t].size() == 1) {
        const int source = sources[t][0];
        EXPECT_LT(found[i].find(concat("<w", source, ">")), at) << found[i] << ' ' << translation;
        EXPECT_GT(found[i].find(concat("</w", source, ">")), at) << found[i];
        ++checked;
      }
      at += word.size();
    }
  }
  EXPECT_GT(checked, 10);
}

TEST_F(MarkupTest, ObjectsHaveTheMarkup) {
  const Lines lines = translate("--markup xml --detail jsonl --n-best 2 --alignments -", kMarked);
  const Lines texts = translate("--markup xml --n-best 2", kMarked);
  ASSERT_EQ(lines.size(), 5U);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json line = Json::parse(lines[i]);
    EXPECT_EQ(line["source"], lines_of(kMarked)[i]);
    for (size_t n = 0; n < line["translations"].size(); ++n) {
      EXPECT_EQ(line["translations"][n]["text"], texts[2 * i + n]);
    }
  }
}

TEST_F(MarkupTest, TagsMayCrossTheBordersOfSentences) {
  const std::string plain = "ba ce di! fo gu ha? je\n";
  const std::string marked = "<p>ba <b>ce di! fo</b> gu ha? <x/>je</p>\n";
  const std::string options = "--split-sentences en";
  const std::string out = translate(options + " --markup xml", marked).at(0);
  EXPECT_EQ(parted(out).first, translate(options, plain).at(0)) << out;
  EXPECT_EQ(parted(out).second, parted(marked).second) << out;
  EXPECT_EQ(out.find("<p>"), 0U) << out;
  EXPECT_LT(out.find("<b>"), out.find("</b>")) << out;
  // Blocks of HTML are parted.
  const std::string blocks = "<p>ba ce</p><p>mu lo! fo gu</p>  <br>\n";
  const Lines each = translate("", "ba ce\nmu lo!\nfo gu\n");
  std::string html = translate(options + " --markup html", blocks).at(0);
  EXPECT_THAT(html, HasSubstr("</p>  <br>"));
  std::string expected = "<p>" + each.at(0) + "</p><p>" + each.at(1) + each.at(2) + "</p><br>";
  std::erase(html, ' '), std::erase(expected, ' ');  // a translation may be empty
  EXPECT_EQ(html, expected);
  EXPECT_EQ(translate(options + " --markup html", "<br> <hr>\n\n"), (Lines{"<br> <hr>", ""}));
}

TEST_F(MarkupTest, RefusesWhatItCannotDo) {
  const auto layer = folder_->run("translate --model one --markup xml --alignment-layer 9", "ba\n");
  EXPECT_EQ(layer.code, 2) << layer.err;
  const auto format = folder_->run("translate --model one --markup rtf", "ba\n");
  EXPECT_EQ(format.code, 2) << format.err;
  ASSERT_EQ(folder_->train("infilling", "holes"), 0) << folder_->messages();
  const auto holes = folder_->run("translate --model holes --markup xml", "ba <mask>\n");
  EXPECT_EQ(holes.code, 2) << holes.err;
  EXPECT_THAT(holes.err, HasSubstr("words such as <mask>"));
}

TEST_F(MarkupTest, UnknownWordsAreCopied) {
  const std::string plain = translate("", "ba \u4eac di\n").at(0);
  EXPECT_EQ(plain.find("\u4eac"), std::string::npos) << plain;
  const std::string copied = translate("--copy-unknown", "ba (\u4eac\u90fd) di\n").at(0);
  const size_t at = copied.find("\u4eac\u90fd");
  ASSERT_NE(at, std::string::npos) << copied;
  EXPECT_EQ(copied.find("\u4eac", at + 1), std::string::npos) << copied;
  const std::string both = translate("--copy-unknown --markup xml", "ba <b>\u4eac</b> di\n").at(0);
  EXPECT_THAT(both, HasSubstr("<b>\u4eac</b>"));
  // What it has no unknown tokens of comes as without.
  EXPECT_EQ(translate("--copy-unknown", "ba ce di\n"), translate("", "ba ce di\n"));
  ASSERT_EQ(
      folder_->train("translation", "bytes", {"tokenizer={vocab_size: 300, byte_fallback: true}"}),
      0)
      << folder_->messages();
  const auto refused = folder_->run("translate --model bytes --copy-unknown", "ba\n");
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("no unknown tokens"));
}

}  // namespace
}  // namespace tapestry
