// Translations that must contain a glossary's terms, and texts that are kept.
#include <gmock/gmock.h>

#include <memory>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Lines = std::vector<std::string>;

const std::string kInput = "ba ce di\nfo gu\n\nlo ba mu ba\nBa ha\nbace di\n";
constexpr const char* kMarks = "tokenizer.user_symbols=['<term>', '<means>', '</term>']";

/// The models are trained once, when they are first asked for.
class RequiredTextsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { folder_ = std::make_unique<TinyRunFolder>("required"); }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string run() {
    if (!std::filesystem::exists(folder_->path("run"))) {
      EXPECT_EQ(folder_->train("translation", "run", {"training.max_steps=120"}), 0)
          << folder_->messages();
      folder_->write("terms.tsv", "ba\tmu lo\n");
    }
    return "translate --model run ";
  }
  static Lines translate(const std::string& options, const std::string& input = kInput) {
    return lines_of(folder_->output(run() + options, input));
  }
  static int64_t count(const std::string& line, const std::string& word) {
    const std::string text = " " + line + " ", whole = " " + word + " ";
    int64_t times = 0;
    for (size_t at = 0; (at = text.find(whole, at)) != std::string::npos; at += whole.size() - 1) {
      ++times;
    }
    return times;
  }
  static std::string refused(const std::string& options) {
    const auto result = folder_->run(run() + options, kInput);
    EXPECT_NE(result.code, 0) << options;
    return result.err;
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> RequiredTextsTest::folder_;

TEST_F(RequiredTextsTest, TermsStandInTheTranslation) {
  for (const std::string search : {"", "--beam-size 1 ", "--beam-size 4 --n-best 2 ",
                                   "--weights int8 ", "--no-repeat-ngram-size 3 "}) {
    const Lines plain = translate(search);
    const Lines lines = translate(search + "--terms terms.tsv");
    const size_t each = search.find("--n-best") == std::string::npos ? 1 : 2;
    ASSERT_EQ(lines.size(), 6 * each);
    for (size_t n = 0; n < each; ++n) {
      EXPECT_GE(count(lines[0 * each + n], "mu lo"), 1) << search << lines[0 * each + n];
      EXPECT_GE(count(lines[3 * each + n], "mu lo"), 2) << search << lines[3 * each + n];
      EXPECT_GE(count(lines[4 * each + n], "mu lo"), 1) << "its first letter may be a capital";
      for (const size_t line : {1, 2, 5}) {
        EXPECT_EQ(lines[line * each + n], plain[line * each + n]) << search;
      }
    }
    EXPECT_EQ(translate(search + "--terms terms.tsv --batch-size 1 --threads 2"), lines);
  }
}

TEST_F(RequiredTextsTest, TermsAreInTheShortlistAndBesideAPrefix) {
  run();
  ASSERT_EQ(folder_->run("shortlist --model run --output lex.s2t").code, 0) << folder_->messages();
  const Lines lines = translate("--shortlist lex.s2t --shortlist-size 1 --terms terms.tsv");
  EXPECT_GE(count(lines[3], "mu lo"), 2) << lines[3];
  const Lines after = translate("--prefix-column --terms terms.tsv", "ba ce\tmu lo\nba ce\tce\n");
  EXPECT_EQ(after[0].substr(0, 5), "mu lo");
  EXPECT_EQ(count(after[0], "mu lo"), 1) << "the prefix has it";
  EXPECT_EQ(count(after[1], "mu lo"), 1);
}

TEST_F(RequiredTextsTest, TextsAreKept) {
  const Lines lines = translate("--keep '/ce|di/'");
  EXPECT_EQ(count(lines[0], "ce"), 1) << lines[0];
  EXPECT_EQ(count(lines[0], "di"), 1) << lines[0];
  // The longer of two that overlap: a term inside does not change it.
  EXPECT_GE(count(translate("--terms terms.tsv --keep '/di.ba.ce/'", "di ba ce\n")[0], "di ba ce"),
            1);
  const auto unknown = folder_->run(run() + "--keep numbers", "ba 12\n");
  EXPECT_EQ(unknown.code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("warning: 1 text to keep cannot be written with the model's "
                                     "vocabulary, the first is '12' of line 1."));
  const auto cut = folder_->run(run() + "--max-new-tokens 2 --keep /ba.ce.di/", "ba ce di\n");
  EXPECT_EQ(cut.code, 0) << "the limit has room for what is required";
  EXPECT_EQ(count(lines_of(cut.out)[0], "ba ce di"), 1) << cut.out;
}

TEST_F(RequiredTextsTest, WhatTheModelDoesNotReadIsNotRequired) {
  const std::string line = "ce di ba\n";
  const auto cut = folder_->run(run() + "--max-source-length 2 --terms terms.tsv", line);
  EXPECT_THAT(cut.err, HasSubstr("cut"));
  EXPECT_EQ(cut.out, folder_->output(run() + "--max-source-length 2", line));
  EXPECT_GE(count(translate("--terms terms.tsv", line)[0], "mu lo"), 1);
}

TEST_F(RequiredTextsTest, WhatCannotBeIsRefused) {
  folder_->write("unknown.tsv", "ce\tdi\nba\tXy\n");
  EXPECT_THAT(
      refused("--terms unknown.tsv"),
      HasSubstr("unknown.tsv:2: expected a translation that the model can write, got 'Xy'"));
  EXPECT_THAT(refused("--terms terms.tsv --do-sample --beam-size 1"), HasSubstr("do_sample draws"));
  EXPECT_THAT(refused("--keep numbers --mbr 4 --beam-size 1"), HasSubstr("mbr draws"));
  EXPECT_THAT(refused("--keep symbols"), HasSubstr("needs a model with tokenizer.user_symbols"));
  EXPECT_THAT(refused("--keep dates"), HasSubstr("expected one of urls, emails, numbers"));
  EXPECT_THAT(refused("--terms terms.tsv --terms-mode soft"), HasSubstr("this one has no <term>"));
  EXPECT_THAT(refused("--terms-mode soft"), HasSubstr("--terms"));
}

TEST_F(RequiredTextsTest, SoftTermsStandInTheSource) {
  run();
  // The translation of word i is the word n - 1 - i.
  std::string links;
  for (const std::string& line : lines_of(read_file(folder_->path("train.src")))) {
    const auto words = std::ranges::count(line, ' ') + 1;
    for (int64_t i = 0; i < words; ++i) links += concat(i > 0 ? " " : "", i, '-', words - 1 - i);
    links += '\n';
  }
  folder_->write("links", links);
  const std::string script = project_file("apps/annotate-terms.sh") + " ";
  const std::string files = concat(folder_->path("train.src"), ' ', folder_->path("train.tgt"), ' ',
                                   folder_->path("links"));
  ASSERT_EQ(std::system(concat(script, files, " 0.5 7 > ", folder_->path("marked.src")).c_str()),
            0);
  const Lines marked = lines_of(read_file(folder_->path("marked.src")));
  const Lines plain = lines_of(read_file(folder_->path("train.src")));
  ASSERT_EQ(marked.size(), plain.size());
  int64_t with_terms = 0;
  for (size_t i = 0; i < marked.size(); ++i) {
    const size_t begin = marked[i].find("<term> "), means = marked[i].find(" <means> ");
    if (begin == std::string::npos) {
      EXPECT_EQ(marked[i], plain[i]);
      continue;
    }
    ++with_terms;
    // The words between the marks are those of the line, and backwards their translation.
    const std::string source = marked[i].substr(begin + 7, means - begin - 7);
    const size_t end = marked[i].find(" </term>");
    std::string target = marked[i].substr(means + 9, end - means - 9);
    EXPECT_EQ(marked[i].substr(0, begin) + source + marked[i].substr(end + 8), plain[i]);
    std::string backwards;
    for (size_t at = 0; at < source.size(); at += 3) {
      backwards.insert(0, source.substr(at, 2) + (backwards.empty() ? "" : " "));
    }
    EXPECT_EQ(target, backwards);
  }
  EXPECT_GT(with_terms, std::ssize(marked) / 3);
  EXPECT_LT(with_terms, std::ssize(marked) * 2 / 3);
  ASSERT_EQ(folder_->train("translation", "soft",
                           {"data.train.source=marked.src", kMarks, "training.max_steps=60"}),
            0)
      << folder_->messages();
  EXPECT_EQ(
      folder_->output("translate --model soft --terms terms.tsv --terms-mode soft", "ce ba di\n"),
      folder_->output("translate --model soft", "ce <term> ba <means> mu lo </term> di\n"));
  const auto kept = folder_->output("translate --model soft --keep symbols", "ba <term> ce\n");
  EXPECT_THAT(kept, HasSubstr("<term>"));
}

}  // namespace
}  // namespace tapestry
