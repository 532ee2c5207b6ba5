// What a plan of memory says of data, against the data itself.
#include "data/examples/kept_bytes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/examples/questions.h"
#include "tests/data/files/files.h"
#include "tests/data/images/image_files.h"

namespace tapestry {
namespace {

class KeptBytes : public testing::Test {
 protected:
  CorpusSpec text(const std::string& name, const std::string& content) const {
    CorpusSpec spec;
    spec.text = folder_.write(name, content);
    return spec;
  }
  TempFolder folder_;
};

TEST_F(KeptBytes, AreThePixelsOfImages) {
  CorpusSpec spec;
  spec.images = folder_.write("images", gzip(idx_file({100, 2, 3}, counting(600))));
  std::vector<uint8_t> labels(100);
  labels.back() = 1;
  spec.labels = folder_.write("labels", idx_file({100}, labels));
  spec.range_begin = 0.25;
  const ImageCorpus corpus = load_images({spec});
  EXPECT_EQ(kept_bytes({spec}, corpus.image_size), std::ssize(corpus.pixels));
  EXPECT_EQ(corpus.pixels.capacity(), corpus.pixels.size());  // nothing was there twice
  EXPECT_EQ(corpus.pixels.front(), 150);
  spec.images = folder_.write("images", idx_file({1u << 30, 2, 3}, {1}));  // what it does not hold
  EXPECT_EQ(kept_bytes({spec}, corpus.image_size), 0);
  EXPECT_EQ(kept_bytes({spec}, {.height = 7, .width = 0, .channels = 3}), 0);
  spec.images = folder_.write("images", idx_file({}, {1}));  // no axis, no number of images
  EXPECT_EQ(kept_bytes({spec}, corpus.image_size), 0);

  CorpusSpec list;
  list.images = folder_.write("list.tsv", "a\tone.png\n\nb\ttwo.png\n");
  EXPECT_EQ(kept_bytes({list}, {.height = 5, .width = 4, .channels = 3}), 120);
  EXPECT_EQ(kept_bytes({list}, {}), 0);  // of no size yet
  list.images = folder_.path("missing.tsv");
  EXPECT_EQ(kept_bytes({list}, corpus.image_size), 0);
}

TEST_F(KeptBytes, OfQuestionsAreSomeTimesTheirFile) {
  const std::string line = R"({"question": "who", "context": "they", "answer": "they"})";
  CorpusSpec spec;
  spec.records = {folder_.write("a.jsonl", line), &kJsonl};
  spec.question_column = "question";
  EXPECT_GT(kept_bytes({spec}, {}), 2 * std::ssize(line));
  EXPECT_EQ(token_file_bytes({spec}, false), 0);  // not both
  EXPECT_EQ(kept_bytes({text("t", "a text")}, {}), 0);
}

TEST_F(KeptBytes, OfTokensFollowTheText) {
  const std::string content(4000, 'x');
  CorpusSpec spec = text("t", content);
  EXPECT_EQ(token_file_bytes({spec}, true), 16000);
  EXPECT_EQ(token_file_bytes({spec, spec}, false), 8000);
  spec.split = "valid";
  EXPECT_EQ(token_file_bytes({spec}, true), 160);
  spec.split = "all";
  spec.documents = "file";
  spec.range_end = 0.5;
  EXPECT_EQ(token_file_bytes({spec}, true), 8000);
  const std::string packed = gzip(content);
  EXPECT_EQ(token_file_bytes({text("t.gz", packed)}, true), 12 * std::ssize(packed));
  EXPECT_EQ(token_file_bytes({text("none", "")}, true), 0);
  CorpusSpec few = text("t", std::string(100000, 'x'));
  few.limit = 1;
  EXPECT_LT(token_file_bytes({few}, true), 10000);
}

// Who opens a pipe and goes away takes what its writer has to say.
TEST_F(KeptBytes, LeavesPipesAlone) {
  const std::string pipe = folder_.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int held = open(pipe.c_str(), O_RDWR);  // so that it can be opened and written
  ASSERT_EQ(write(held, "a\tone.png\n", 10), 10);
  CorpusSpec list, words, questions, idx;
  list.images = words.text = questions.squad = idx.images = idx.labels = pipe;
  EXPECT_EQ(kept_bytes({list, idx, questions}, {.height = 5, .width = 4, .channels = 3}), 0);
  EXPECT_EQ(token_file_bytes({words}, false), 0);
  char left[10];
  EXPECT_EQ(read(held, left, sizeof left), 10);
  close(held);
}

}  // namespace
}  // namespace tapestry
