// Completions in the shells that read them, and manual pages as man formats them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/text.h"
#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class SharedFilesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new fs::path(fs::temp_directory_path() / concat("tapestry-share-", getpid()));
    fs::remove_all(*folder_);
    fs::create_directories(*folder_);
    said_ = shell(concat("'", tapestry_binary(), "' help --share ", folder_->string()));
  }
  static void TearDownTestSuite() {
    fs::remove_all(*folder_);
    delete folder_;
  }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  /// What a command prints; it must succeed.
  static std::string shell(const std::string& command) {
    const std::string out = path("out");
    const int status =
        std::system(concat("{ ", command, "\n} >'", out, "' 2>&1 </dev/null").c_str());
    const std::string text = read_file(out);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0) << command << '\n' << text;
    return text;
  }
  static bool there_is(const std::string& program) {
    return std::system(concat("command -v ", program, " >/dev/null").c_str()) == 0;
  }
  static std::vector<std::string> lines(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> list;
    for (std::string line; std::getline(in, line);) list.push_back(line);
    return list;
  }

  static fs::path* folder_;
  static std::string said_;
};
fs::path* SharedFilesTest::folder_ = nullptr;
std::string SharedFilesTest::said_;

// Candidates of bash for a line that ends where the cursor is.
class BashCompletion : public SharedFilesTest {
 protected:
  std::vector<std::string> of(const std::string& line, const std::string& before = "") {
    std::ofstream(path("ask"))
        << "source " << path("bash-completion/completions/tapestry") << '\n'
        << before << "\nCOMP_LINE=" << '\'' << line << '\''
        << "\nCOMP_POINT=${#COMP_LINE}\n_tapestry\n"
           "[ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    return lines(shell("bash " + path("ask")));
  }
};

TEST_F(BashCompletion, OffersCommandsAndTheirOptions) {
  EXPECT_THAT(of("tapestry tr"), ElementsAre("train", "translate"));
  EXPECT_THAT(of("tapestry "), AllOf(Contains("help"), Contains("--version"), Contains("bench")));
  EXPECT_THAT(of("tapestry translate --thr"), ElementsAre("--threads"));
  EXPECT_THAT(of("tapestry classify --beam"), IsEmpty());
  EXPECT_THAT(of("tapestry help tran"), ElementsAre("translate"));
}

TEST_F(BashCompletion, OffersTheChoicesOfAnOption) {
  EXPECT_THAT(of("tapestry translate --weights i"), ElementsAre("int8", "int4"));
  EXPECT_THAT(of("tapestry translate --weights=i"), ElementsAre("int8", "int4"));
  EXPECT_THAT(of("tapestry translate --weights=i", "COMP_WORDBREAKS=' '"),
              ElementsAre("--weights=int8", "--weights=int4"));
  EXPECT_THAT(of("tapestry translate --length-penalty-type "),
              ElementsAre("none", "average", "gnmt"));
  // Numbers and files have none: the shell offers files.
  EXPECT_THAT(of("tapestry translate --threads "), IsEmpty());
  EXPECT_THAT(of("tapestry translate --input "), IsEmpty());
}

TEST_F(BashCompletion, OffersKeysBehindTheConfig) {
  EXPECT_THAT(of("tapestry train "), IsEmpty());  // a file
  EXPECT_THAT(of("tapestry train --resume x "), IsEmpty());
  EXPECT_THAT(of("tapestry train a.yaml trai"), ElementsAre("training."));
  EXPECT_THAT(of("tapestry train --resume x a.yaml training.optimizer.nam"),
              ElementsAre("training.optimizer.name="));
  EXPECT_THAT(of("tapestry plan a.yaml seed=1 training.optimizer.name=ada"),
              ElementsAre("adagrad", "adadelta", "adam", "adamw"));
  EXPECT_THAT(of("tapestry train a.yaml data.document_mask="), ElementsAre("true", "false"));
  EXPECT_THAT(of("tapestry train a.yaml data.valid.docu"), ElementsAre("data.valid.documents="));
  EXPECT_THAT(of("tapestry translate a.yaml trai"), IsEmpty());  // takes no keys
}

TEST_F(SharedFilesTest, FishOffersTheSame) {
  if (!there_is("fish")) GTEST_SKIP() << "no fish";
  const auto of = [&](const std::string& line) {
    return lines(shell(concat("fish -c 'source ", path("fish/vendor_completions.d/tapestry.fish"),
                              "; complete -C \"", line, "\"'")));
  };
  EXPECT_THAT(of("tapestry tr"), ElementsAre("train\tTrain the model of a config file",
                                             "translate\tTranslate standard input, or a file, "
                                             "line by line"));
  EXPECT_THAT(of("tapestry translate --weights int"),
              ElementsAre(testing::StartsWith("int4\t"), testing::StartsWith("int8\t")));
  EXPECT_THAT(of("tapestry train a.yaml training.optimizer.na"),
              ElementsAre("training.optimizer.name="));
  EXPECT_THAT(of("tapestry train a.yaml training.optimizer.name=ada"),
              ElementsAre("training.optimizer.name=adadelta", "training.optimizer.name=adagrad",
                          "training.optimizer.name=adam", "training.optimizer.name=adamw"));
  EXPECT_THAT(of("tapestry train a.yaml data.train.text=/et"),
              ElementsAre("data.train.text=/etc/"));
}

TEST_F(SharedFilesTest, ZshReadsItsScript) {
  if (!there_is("zsh")) GTEST_SKIP() << "no zsh";
  const std::string script = path("zsh/vendor-completions/_tapestry");
  EXPECT_EQ(shell("zsh -n " + script), "");
  const std::string text = read_file(script);
  EXPECT_THAT(text, HasSubstr("'*--model=[checkpoint or run folder;"));
  EXPECT_THAT(text, HasSubstr("'--length-penalty-type=[Divides the log-probability of a "
                              "hypothesis\\: by"));
  EXPECT_THAT(text, HasSubstr("(none average gnmt)'"));
  EXPECT_THAT(text, HasSubstr("'*:overrides:_tapestry_key'"));
}

TEST_F(SharedFilesTest, ManualPagesHaveEveryOptionAndKey) {
  if (!there_is("groff")) GTEST_SKIP() << "no groff";
  const auto formatted = [&](const std::string& page) {
    // Warnings come with it.
    return shell(concat("groff -man -ww -T utf8 -P -cbou ", path("man/" + page)));
  };
  size_t pages = 0;
  for (const fs::directory_entry& page : fs::directory_iterator(path("man/man1"))) {
    const std::string name = page.path().stem().string(), text = formatted("man1/" + name + ".1");
    EXPECT_THAT(text, Not(HasSubstr("groff:"))) << name;
    EXPECT_THAT(text, Not(HasSubstr("troff"))) << name;
    if (name == "tapestry") {
      EXPECT_THAT(text, AllOf(HasSubstr("EXIT STATUS"), HasSubstr("TAPESTRY_VECTORS")));
      continue;
    }
    ++pages;
    const std::string help =
        shell(concat("'", tapestry_binary(), "' help ", name.substr(name.find('-') + 1)));
    for (const std::string& line : lines(help)) {
      const size_t begin = line.find("--");
      if (begin != 2 && !line.starts_with("  -")) continue;
      const std::string option = line.substr(begin, line.find_first_of(" ,", begin) - begin);
      EXPECT_THAT(text, HasSubstr(option)) << name;
    }
  }
  EXPECT_GT(pages, 20);
  EXPECT_EQ(said_, concat(pages + 5, " files in ", folder_->string(), '\n'));
  const std::string keys = formatted("man5/tapestry-config.5");
  for (const char* text : {"training.optimizer.betas", "data.train.tsv", "generation.top_p",
                           "default: [0.9, 0.999]"}) {
    EXPECT_THAT(keys, HasSubstr(text));
  }
}

TEST_F(SharedFilesTest, OneWayAtATime) {
  const int status = std::system(
      concat("'", tapestry_binary(), "' help train --completion bash >'", path("out"), "' 2>&1")
          .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(read_file(path("out")), HasSubstr("word excludes --completion"));
}

}  // namespace
}  // namespace tapestry
