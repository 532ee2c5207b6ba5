// What the binary does with classifiers of images: classify and evaluate, from IDX files, PNG and
// PNM files, and the linear model.
#include <gmock/gmock.h>

#include "apps/config/config.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

const char* const kCorners[] = {"north-west", "north-east", "south-west"};

class ImageCommandsTest : public testing::Test {
 protected:
  /// Trained once, when it is first asked for.
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("images");
    ASSERT_EQ(folder_->train("images", "run", {"training.max_steps=100"}), 0)
        << folder_->messages();
  }
  static void TearDownTestSuite() { folder_.reset(); }

  /// The validation set as files, half of them PNG, half PGM: paths, and lines of a list.
  static std::pair<Lines, std::string> write_pictures() {
    Lines paths;
    std::string list;
    std::filesystem::create_directories(folder_->path("pictures"));
    for (uint32_t i = 0; i < 60; ++i) {
      const TestPicture picture = corner_picture(static_cast<int>(i % 3), {2, i, 1});
      const std::string name = concat("pictures/", i, i % 2 == 0 ? ".png" : ".pgm");
      folder_->write(name, i % 2 == 0 ? png_file(picture) : pnm_file(picture));
      paths.push_back(name);
      list += concat(kCorners[i % 3], '\t', name, '\n');
    }
    return {paths, list};
  }

  static ImageFormat image_format_of(const std::string& run) {
    const CheckpointFiles files = read_checkpoint(folder_->path(run + "/last"));
    return load_checkpoint_config(files.at("config.json"), "config.json").data.image;
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> ImageCommandsTest::folder_;

TEST_F(ImageCommandsTest, ClassifyNamesTheClassOfEachFile) {
  const auto [paths, list] = write_pictures();
  std::string input;
  for (const std::string& path : paths) input += path + "\n\n";
  const Lines lines = lines_of(folder_->output("classify --model run/last", input));
  ASSERT_EQ(lines.size(), 120u);
  int right = 0;
  for (size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(lines[2 * i + 1], "");
    const size_t tab = lines[2 * i].find('\t');
    right += lines[2 * i].substr(0, tab) == kCorners[i % 3];
    const double probability = std::stod(lines[2 * i].substr(tab + 1));
    EXPECT_GT(probability, 1.0 / 3);
    EXPECT_LE(probability, 1);
  }
  EXPECT_GE(right, 57);
  EXPECT_NEAR(100.0 * right / 60, folder_->metrics("run").back().at("accuracy").get<double>(), 1e-6)
      << "the validation sees the same pictures";
}

// The CLS token's row over 2 x 2 patches of 4 x 4 pixels.
TEST_F(ImageCommandsTest, ClassifyShowsWhatTheModelLooksAt) {
  const auto [paths, list] = write_pictures();
  const std::string input = concat(paths[0], '\n', paths[1], '\n');
  EXPECT_EQ(folder_->output("classify --model run --attention a.json", input),
            folder_->output("classify --model run", input));
  const Json pages = Json::parse(read_file(folder_->path("a.json"))).at("pages");
  ASSERT_EQ(pages.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Json& page = pages[i];
    EXPECT_EQ(page.at("title"), paths[i]);
    EXPECT_EQ(page.at("axes").at(1).at("tokens"),
              Json::parse(R"(["CLS", "row 1, column 1", "row 1, column 2", "row 2, column 1",
                              "row 2, column 2"])"));
    const TestPicture picture =
        corner_picture(static_cast<int>(i % 3), {2, static_cast<uint32_t>(i), 1});
    EXPECT_EQ(page.at("image").at("pixels").get<std::vector<uint8_t>>(), picture.pixels);
    EXPECT_EQ(page["image"].at("patch_size"), 4);
    ASSERT_EQ(page.at("maps").size(), 1u);
    for (const Json& head : page["maps"][0].at("heads")) {
      ASSERT_EQ(head.size(), 1u);
      ASSERT_EQ(head[0].size(), 5u);
      double sum = 0;
      for (const Json& weight : head[0]) sum += weight.get<double>();
      EXPECT_NEAR(sum, 1, 1e-4);
    }
  }
}

TEST_F(ImageCommandsTest, ClassifyRefusesWhatIsNoSuchImage) {
  folder_->write("wide.png", png_file({8, 9, 1, std::vector<uint8_t>(72)}));
  auto outcome = folder_->run("classify --model run", "wide.png\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("wide.png is of 8 x 9 pixels of 1 channel, expected 8 x 8"));
  outcome = folder_->run("classify --model run", "none.png\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("none.png cannot be opened"));
  // Those behind it are answered all the same.
  folder_->write("good.png", png_file({8, 8, 1, std::vector<uint8_t>(64)}));
  outcome = folder_->run("classify --model run", "good.png\nnone.png\n\ngood.png\n");
  EXPECT_EQ(outcome.code, 3);
  const Lines lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[0], "");
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[2], "");
  EXPECT_EQ(lines[3], lines[0]);
  EXPECT_THAT(outcome.err, HasSubstr("warning: line 2: [data] none.png cannot be opened"));
  EXPECT_THAT(outcome.err, HasSubstr("[classify] 1 line could not be classified"));
}

TEST_F(ImageCommandsTest, EvaluateAgreesWithTheValidation) {
  const Json valid = folder_->metrics("run").back();
  const auto evaluate = [&](const std::string& images) {
    return Json::parse(
        folder_->output(concat("evaluate --model run/last --json --images ", images)));
  };
  const Json idx = evaluate("valid-images.gz --labels valid-labels");
  EXPECT_NEAR(idx.at("nll").get<double>(), valid.at("nll").get<double>(), 1e-9);
  EXPECT_EQ(idx.at("accuracy"), valid.at("accuracy"));
  EXPECT_EQ(idx.at("images"), 60);
  folder_->write("pictures.tsv", write_pictures().second);
  EXPECT_EQ(evaluate("pictures.tsv"), idx) << "the same pixels, read from other files";
  EXPECT_THAT(
      folder_->output("evaluate --model run --images pictures.tsv"),
      testing::ContainsRegex(
          "nll [0-9.]+  accuracy [0-9.]+ \\([0-9.]+ to [0-9.]+\\) %  "
          "macro f1 [0-9.]+ %  weighted f1 [0-9.]+ %  top 2 accuracy [0-9.]+ %  images 60\n"));
}

TEST_F(ImageCommandsTest, EvaluateRefusesModelsOfTexts) {
  ASSERT_EQ(folder_->train("classification", "texts", {"training.max_steps=1"}), 0)
      << folder_->messages();
  const auto outcome =
      folder_->run("evaluate --model texts --images valid-images.gz --labels valid-labels");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("[evaluate --images] expected a model of images, "));
  EXPECT_EQ(folder_->run("evaluate --model run").code, 2);
}

// A run that begins with another one's parameters sees images as that one does.
TEST_F(ImageCommandsTest, InitFromTakesOverTheFormatOfTheImages) {
  ASSERT_EQ(folder_->train("images", "next",
                           {"init_from=run", "training.max_steps=1", "data.train.range=[0.5, 1]"}),
            0)
      << folder_->messages();
  EXPECT_THAT(folder_->messages(), HasSubstr("init_from: 22 parameters from "));
  EXPECT_EQ(image_format_of("next").mean, image_format_of("run").mean);
  EXPECT_EQ(image_format_of("next").std, image_format_of("run").std);
}

TEST_F(ImageCommandsTest, ARunFromAListOfFilesIsTheSame) {
  folder_->write("pictures.tsv", write_pictures().second);
  const std::string labels = "data.labels=[north-west, north-east, south-west]";
  const auto train = [&](const std::string& run, const std::string& corpus) {
    EXPECT_EQ(
        folder_->train("images", run, {"data.train=" + corpus, labels, "training.max_steps=5"}), 0)
        << folder_->messages();
    return without_data_files(folder_->result(run));
  };
  expect_equal(train("idx", "{images: valid-images.gz, labels: valid-labels}"),
               train("files", "{images: pictures.tsv}"));
}

TEST_F(ImageCommandsTest, TheLinearModelIsTrainedTheSameWay) {
  ASSERT_EQ(folder_->train("images", "linear", {"model={type: linear}", "training.max_steps=100"}),
            0)
      << folder_->messages();
  const std::string text = folder_->output("inspect linear");
  EXPECT_THAT(text, HasSubstr("classifier.weight"));
  EXPECT_THAT(text, HasSubstr("\n195 parameters in 2 tensors")) << "3 x (64 + 1)";
  EXPECT_GT(folder_->metrics("linear").back().at("accuracy").get<double>(), 80);
  write_pictures();
  const auto outcome =
      folder_->run("classify --model linear --attention a.html", "pictures/0.png\n");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "error: [attention] a model of images must be of type vit to attend.\n");
}

TEST_F(ImageCommandsTest, ACheckpointKeepsHowItSeesImages) {
  const ImageFormat format = image_format_of("run");
  EXPECT_EQ(format.size, (ImageSize{8, 8, 1}));
  ASSERT_EQ(format.mean.size(), 1u);
  // Noise of mean 29.5, and on 9 pixels of 64 another 100.
  EXPECT_NEAR(format.mean[0], (29.5 + 100 * 9.0 / 64) / 255, 0.01);
  // Another training set does not change that on resume.
  ASSERT_EQ(folder_->train("images", "resumed", {"training.max_steps=2"}), 0);
  ASSERT_EQ(
      folder_->train("images", "resumed", {"training.max_steps=4", "data.train.range=[0.1, 1]"}), 0)
      << folder_->messages();
  EXPECT_EQ(image_format_of("resumed").mean, format.mean);
}

TEST_F(ImageCommandsTest, InspectTakesTheSizeFromTheImages) {
  EXPECT_EQ(folder_->run("inspect images.yaml").code, 0);
  const auto outcome = folder_->run("inspect images.yaml data.train.images=absent.gz");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("data.image must give height, width and channels where no "
                                     "images are read."));
}

}  // namespace
}  // namespace tapestry
