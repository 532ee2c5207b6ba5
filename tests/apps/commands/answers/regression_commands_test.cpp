// Training and asking a regression: against sums in double, resumed, and what its page shows.
#include <gmock/gmock.h>

#include <cmath>

#include "apps/tasks/regression.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class RegressionTest : public testing::Test {
 protected:
  void train(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    ASSERT_EQ(folder_.train("regression", run, overrides), 0) << folder_.messages();
  }
  std::vector<double> predict(const std::string& run, const std::string& input) const {
    std::vector<double> answers;
    for (const std::string& line : lines_of(folder_.output("predict --model " + run, input))) {
      answers.push_back(std::stod(line));
    }
    return answers;
  }
  Points points(const std::string& name) const {
    CorpusSpec spec;
    spec.records = {folder_.path(name), &kCsv};
    return load_points({spec});
  }

  TinyRunFolder folder_{"regression"};
};

double similarity(const std::string& kernel, double u) {
  if (kernel == "gaussian") return std::exp(-u * u / 2);
  if (std::abs(u) >= 1) return 0;
  return kernel == "boxcar" ? 1 : 1 - u * u;
}

TEST_F(RegressionTest, PredictsTheWeightedMeanOfThePoints) {
  const Points data = points("train.csv");
  for (const std::string kernel : {"gaussian", "boxcar", "epanechnikov"}) {
    train(kernel, {"model.kernel=" + kernel, "model.width=0.8", "model.learn_width=false"});
    const std::vector<double> answers = predict(kernel, "0.5\n2\n3.25\n");
    size_t at = 0;
    for (const double x : {0.5, 2.0, 3.25}) {
      double weights = 0, sum = 0;
      for (size_t i = 0; i < data.x.size(); ++i) {
        const double weight = similarity(kernel, (x - data.x[i]) / 0.8);
        weights += weight;
        sum += weight * data.y[i];
      }
      EXPECT_NEAR(answers.at(at++), sum / weights, 2e-5) << kernel << " at " << x;
    }
  }
}

// The leave-one-out error in double, over a grid of widths.
TEST_F(RegressionTest, LearnsTheWidthThatTheOtherPointsCallFor) {
  const Points data = points("train.csv");
  const auto error = [&](double width) {
    double squares = 0;
    for (size_t i = 0; i < data.x.size(); ++i) {
      double weights = 0, sum = 0;
      for (size_t j = 0; j < data.x.size(); ++j) {
        if (i == j) continue;
        const double weight = similarity("gaussian", (data.x[i] - data.x[j]) / width);
        weights += weight;
        sum += weight * data.y[j];
      }
      squares += std::pow(sum / weights - data.y[i], 2);
    }
    return squares;
  };
  double best = 0.05;
  for (double width = 0.05; width < 2; width += 0.005) {
    if (error(width) < error(best)) best = width;
  }
  train("learned", {"training.max_steps=600", "training.batch_size=40", "training.ema_decay=0",
                    "dtype=float64", "training.gradient_accumulation_steps=1"});
  const auto model =
      RegressionModel::load(read_model_files(folder_.path("learned/last")), "cpu", "test");
  EXPECT_NEAR(model->width(), best, 0.02);
  EXPECT_LT(error(best), 0.95 * error(0.5)) << "the width that it starts from must not be the best";
}

TEST_F(RegressionTest, AnInterruptedRunEndsWithTheSameBits) {
  train("whole");
  train("parts", {"training.max_hours=1e-9"});
  train("parts", {"threads=2"});
  CheckpointFiles whole = folder_.result("whole"), parts = folder_.result("parts");
  whole.erase("MANIFEST.json"), parts.erase("MANIFEST.json");
  expect_equal(whole, parts);
  EXPECT_TRUE(whole.contains("points.csv"));
  EXPECT_EQ(predict("whole", "1\n2\n"), predict("parts", "1\n2\n"));
}

TEST_F(RegressionTest, MeasuresTheErrorOnTheValidationSet) {
  train("run", {"model.learn_width=false", "training.ema_decay=0"});
  const Points valid = points("valid.csv");
  std::string input;
  for (const double x : valid.x) input += concat(x, '\n');
  const std::vector<double> answers = predict("run", input);
  double squares = 0;
  for (size_t i = 0; i < answers.size(); ++i) squares += std::pow(answers[i] - valid.y[i], 2);
  const auto entries = folder_.metrics("run");
  EXPECT_NEAR(entries.back().at("mse").get<double>(), squares / static_cast<double>(valid.size()),
              1e-4);
  for (const auto& entry : entries) {
    EXPECT_FALSE(entry.contains("ppl")) << entry.dump();
    EXPECT_FALSE(entry.contains("nll")) << entry.dump();
  }
}

TEST_F(RegressionTest, AnswersLineByLineAndDrawsAPage) {
  train("run");
  const std::string out = folder_.output("predict --model run --attention fit.html", "1\n\n 2 \n");
  ASSERT_EQ(lines_of(out).size(), 3u);
  EXPECT_EQ(lines_of(out)[1], "");
  const std::string page = read_file(folder_.path("fit.html"));
  EXPECT_THAT(page, HasSubstr("Kernel gaussian, width "));
  EXPECT_THAT(page, HasSubstr("<polyline"));
  EXPECT_THAT(page, HasSubstr("<title>2: "));
  EXPECT_THAT(page, testing::Not(HasSubstr("nan")));
  const auto circles = [&] {
    size_t count = 0;
    for (size_t at = 0; (at = page.find("<circle", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(circles(), 40u + 2u);
  // One odd line is answered like an empty one, and told.
  const auto odd = folder_.run("predict --model run", "1\ntwo\n2\n");
  EXPECT_EQ(odd.code, 0) << odd.err;
  ASSERT_EQ(lines_of(odd.out).size(), 3u);
  EXPECT_EQ(lines_of(odd.out)[1], "");
  EXPECT_THAT(odd.err, HasSubstr("warning: 1 line is no record"));
  EXPECT_THAT(odd.err, HasSubstr("[predict] line 2 must be a number, got 'two'."));
  const auto strict = folder_.run("predict --model run --ill-formed error", "1\ntwo\n2\n");
  EXPECT_EQ(strict.code, 3);
  EXPECT_EQ(strict.out, folder_.output("predict --model run", "1\n")) << "the line before it";
  for (const char* command : {"predict --model run --ill-formed error", "predict --model run"}) {
    const auto wrong = folder_.run(command, "two\n");
    EXPECT_EQ(wrong.code, 3);
    EXPECT_THAT(wrong.err, HasSubstr("[predict] line 1 must be a number, got 'two'."));
  }
}

// Against sums in double.
TEST_F(RegressionTest, SeveralFeaturesAndClasses) {
  struct Flower {
    double length, width, weight;
    const char* kind;
  };
  const std::vector<Flower> flowers = {
      {0, 0, 5, "a, b"}, {1, 0.5, 7, "c"}, {0, 2, 1, "c"}, {3, 3, 2, "d"}, {2.5, 3, 4, "d"}};
  std::string csv = "length,width,weight,kind\n";
  for (const Flower& f : flowers) {
    csv += concat(f.length, ',', f.width, ',', f.weight, ",\"", f.kind, "\"\n");
  }
  write_file(folder_.path("flowers.csv"), csv);
  const std::string of = "={csv: flowers.csv, x_columns: [length, width], ";
  const auto fit = [&](const std::string& run, const std::string& column) {
    train(run, {"data.train" + of + column, "data.valid" + of + column, "model.learn_width=false",
                "model.width=0.8"});
  };
  fit("classes", "class_column: kind}");
  fit("numbers", "y_column: weight}");
  const std::string asked = "0.2 0.4\n2,2.5\n\n3\t3\n";
  const auto kinds = lines_of(folder_.output("predict --model classes", asked));
  const auto numbers = lines_of(folder_.output("predict --model numbers", asked));
  ASSERT_EQ(kinds.size(), 4u);
  ASSERT_EQ(numbers.size(), 4u);
  size_t line = 0;
  for (const auto& [length, width] : {std::pair{0.2, 0.4}, {2.0, 2.5}, {-1.0, -1.0}, {3.0, 3.0}}) {
    const size_t at = line++;
    if (length < 0) {
      EXPECT_EQ(kinds[at] + numbers[at], "");
      continue;
    }
    std::map<std::string, double> shares;
    double all = 0, sum = 0;
    for (const Flower& f : flowers) {
      const double u = std::hypot(length - f.length, width - f.width) / 0.8;
      const double similar = std::exp(-u * u / 2);
      all += similar, sum += similar * f.weight, shares[f.kind] += similar;
    }
    EXPECT_NEAR(std::stod(numbers[at]), sum / all, 2e-5);
    const std::string kind = kinds[at].substr(0, kinds[at].find('\t'));
    for (const auto& [name, share] : shares) EXPECT_LE(share, shares[kind]) << name;
    EXPECT_NEAR(std::stod(kinds[at].substr(kind.size())), shares[kind] / all, 1e-4);
  }
  EXPECT_EQ(folder_.metrics("classes").back().at("accuracy"), 100);
  EXPECT_FALSE(folder_.metrics("numbers").back().contains("accuracy"));
  EXPECT_THAT(folder_.output("evaluate --model classes --data 'csv=flowers.csv' --data "
                             "'x_columns=[1, 2]' --data class_column=4"),
              HasSubstr("accuracy"));
  write_file(folder_.path("other.csv"), "1,2,e\n");
  const auto other = folder_.run(
      "evaluate --model classes --data 'csv=other.csv' --data 'x_columns=[1, 2]' --data "
      "class_column=3");
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("has the class 'e', of which the training data have no point"));
  EXPECT_EQ(folder_.run("predict --model classes --attention fit.html", asked).code, 2);
  const auto unmeasured =
      folder_.run("train regression.yaml output_dir=no training.metric_for_best_model=accuracy");
  EXPECT_EQ(unmeasured.code, 2);
  EXPECT_THAT(unmeasured.err,
              HasSubstr("'training.metric_for_best_model' needs a class_column of the points"));
  for (const auto& [keys, message] :
       {std::pair{"x_columns: [length, width]", "'data.train.x_columns' need a y_column"},
        {"x_columns: [1, 2], x_column: 1, y_column: 3",
         "'data.train.x_column' has no effect with x_columns."},
        {"x_column: 1, class_column: 4, y_column: 3",
         "'data.train.y_column' has no effect with class_column."},
        {"x_columns: [1, 1], y_column: 3", "'data.train.x_columns' must differ from the others"}}) {
    const auto refused = folder_.run(
        concat("train regression.yaml output_dir=no data.train='{csv: flowers.csv, ", keys, "}'"));
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr(message));
  }
}

TEST_F(RegressionTest, AnAverageKeepsThePoints) {
  train("run");
  folder_.output("average run/checkpoint-55 run/checkpoint-60 --output mean");
  const auto a =
      RegressionModel::load(read_model_files(folder_.path("run/checkpoint-55")), "cpu", "test");
  const auto b =
      RegressionModel::load(read_model_files(folder_.path("run/checkpoint-60")), "cpu", "test");
  const auto mean = RegressionModel::load(read_model_files(folder_.path("mean")), "cpu", "test");
  EXPECT_NEAR(2 / mean->width(), 1 / a->width() + 1 / b->width(), 1e-5);
  EXPECT_EQ(mean->points.x, a->points.x);
}

TEST_F(RegressionTest, HasARightGradient) {
  for (const char* kernel : {"gaussian", "epanechnikov"}) {
    const std::string out = folder_.output(
        concat("gradcheck regression.yaml model.kernel=", kernel, " --filter 'model of '"));
    EXPECT_THAT(out, HasSubstr("1 of 1 gradients are right")) << out;
  }
}

TEST_F(RegressionTest, OtherCommandsSayWhatTheyNeed) {
  train("run");
  EXPECT_EQ(folder_.run("classify --model run", "1\n").code, 3);
  EXPECT_EQ(folder_.run("translate --model run", "1\n").code, 3);
  EXPECT_EQ(folder_.run("inspect run").code, 0);
  EXPECT_EQ(folder_.run("inspect regression.yaml").code, 0);
  const auto refused = folder_.run("train regression.yaml model.hidden_size=8 output_dir=other");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("hidden_size"));
  const auto boxcar = folder_.run("train regression.yaml model.kernel=boxcar output_dir=other");
  EXPECT_EQ(boxcar.code, 2);
  EXPECT_THAT(boxcar.err, HasSubstr("'model.learn_width' must be false for a boxcar"));
}

}  // namespace
}  // namespace tapestry
