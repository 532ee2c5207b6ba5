// What inspect, gradcheck and bench say about a model.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class FiguresTest : public testing::Test {
 protected:
  TinyRunFolder folder_{"figures"};
};

TEST_F(FiguresTest, BenchPrintsDigitsThatMeanSomething) {
  const std::string out =
      folder_.output("bench clm.yaml --shape 4x12 --steps 2 --warmup-steps 1 --json figures");
  const Json figures = Json::parse(read_file(folder_.path("figures")));
  for (const std::string& line : lines_of(out)) {
    const std::string name = line.substr(0, line.find(' '));
    const std::string value = line.substr(line.rfind(' ') + 1);
    if (!figures.at(name).is_number_float()) continue;
    const double exact = figures.at(name).get<double>();
    EXPECT_NEAR(std::stod(value), exact, 1e-3 * std::abs(exact)) << line;
    const auto digits = std::count_if(value.begin(), value.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    EXPECT_LE(digits, std::abs(exact) < 1 ? 8 : 7) << line;
  }
}

TEST_F(FiguresTest, OnlyTheDataHasDocumentsThatShareABlock) {
  const std::string bench = "bench clm.yaml --steps 1 --warmup-steps 0", shape = " --shape 2x8";
  const auto notes = [&](const std::string& arguments) {
    const auto outcome = folder_.run(arguments + " data.document_mask=true");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(notes("plan clm.yaml"), HasSubstr("note: each block is planned as one document"));
  EXPECT_THAT(notes(bench + shape), HasSubstr("note: a row of --shape is one document"));
  EXPECT_THAT(notes(bench), Not(HasSubstr("one document")));
  EXPECT_THAT(folder_.run(bench + shape).err, Not(HasSubstr("one document")));
  EXPECT_THAT(folder_.run("plan clm.yaml").err, Not(HasSubstr("one document")));
}

// More weights than any machine holds, counted without any.
TEST_F(FiguresTest, InspectNeedsNoMemory) {
  const auto outcome = folder_.run(
      "inspect clm.yaml model.hidden_size=1048576 model.intermediate_size=4194304 "
      "model.num_attention_heads=4 model.num_key_value_heads=4 model.num_hidden_layers=2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(" parameters in "));
  const size_t at = outcome.out.find(" parameters in ");
  const size_t line = outcome.out.rfind('\n', at) + 1;
  EXPECT_GT(std::stoll(outcome.out.substr(line, at - line)), 10'000'000'000'000);
}

TEST_F(FiguresTest, BenchTimesAnswers) {
  const auto decoding = [&](const std::string& arguments) {
    folder_.output(concat("bench --decode --steps 1 --warmup-steps 0 --json figures ", arguments));
    return Json::parse(read_file(folder_.path("figures"))).at("decoding");
  };
  for (const std::string config : {"clm.yaml", "translation.yaml"}) {
    const Json rows = decoding(config + " --shape 3x4x5 --beam-size 2");
    ASSERT_EQ(rows.size(), 2 * kWeightFormats.size()) << config;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].at("weights"), name_of(kWeightFormats[i / 2]));
      EXPECT_EQ(rows[i].at("beams"), i % 2 == 0 ? 1 : 2);
      const double seconds = rows[i].at("median_s").get<double>();
      EXPECT_DOUBLE_EQ(rows[i].at("tokens_per_s").get<double>(), 15 / seconds);
      EXPECT_DOUBLE_EQ(rows[i].at("ms_per_step").get<double>(), 200 * seconds);
      EXPECT_FALSE(rows[i].contains("share_of_bandwidth"));
    }
  }
  // Of one prompt.
  for (const Json& row : decoding("clm.yaml --shape 1x4x5 --beam-size 1")) {
    EXPECT_GT(row.at("share_of_bandwidth").get<double>(), 0);
  }
  ASSERT_EQ(folder_.train("clm", "run"), 0) << folder_.messages();
  EXPECT_EQ(decoding("run --shape 1x4x5 --beam-size 3").size(), 2 * kWeightFormats.size());
  for (const std::string model : {"run", "clm.yaml"}) {
    decoding(model + " --threads 2 --shape 1x4x5");
    EXPECT_EQ(Json::parse(read_file(folder_.path("figures"))).at("threads"), 2) << model;
  }
  const auto outcome = folder_.run("bench --decode --shape 4x5 clm.yaml", "");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--shape must be ANSWERSxREADxWRITTEN with --decode"));
}

// The weights are packed one after the other while they are read.
TEST_F(FiguresTest, BenchSaysWhatAnswersTakeOfTheMemory) {
  ASSERT_EQ(folder_.train("clm", "run",
                          {"training.max_steps=1", "training.eval_steps=0", "model.hidden_size=256",
                           "model.intermediate_size=1024", "model.num_hidden_layers=6"}),
            0)
      << folder_.messages();
  const std::string out = folder_.output(
      "bench --decode run --shape 1x4x5 --beam-size 1 --steps 1 --warmup-steps 0 --json figures");
  const Json rows = Json::parse(read_file(folder_.path("figures"))).at("decoding");
  ASSERT_EQ(rows.size(), kWeightFormats.size());
  // Of four bytes a number; tables and the classifier of int4 have one.
  const std::map<std::string, std::pair<double, double>> shares = {{"float32", {1, 1}},
                                                                   {"bfloat16", {0.5, 0.5}},
                                                                   {"int8", {0.25, 0.26}},
                                                                   {"int4", {0.14, 0.16}}};
  const double float32 = 1e6 * rows[0].at("weights_mb").get<double>();
  for (const Json& row : rows) {
    const auto [least, most] = shares.at(row.at("weights").get<std::string>());
    const double weights = 1e6 * row.at("weights_mb").get<double>();
    EXPECT_GE(weights, 0.999 * least * float32) << row;
    EXPECT_LE(weights, 1.001 * most * float32) << row;
    const auto loading = row.at("load_memory_bytes").get<double>();
    const auto peak = row.at("peak_memory_bytes").get<double>();
    EXPECT_GT(loading, weights);
    EXPECT_LT(loading, weights + 0.25 * float32);
    EXPECT_GT(peak, weights);
    EXPECT_LT(peak, 1.25 * weights + 2e6);
  }
  EXPECT_THAT(out, AllOf(HasSubstr(" ms/step  "), HasSubstr(" MB to load")));
}

TEST_F(FiguresTest, InspectCountsTheStateOfTheOptimizer) {
  const auto said = [&](const std::string& overrides) {
    const std::string out =
        folder_.output("inspect clm.yaml training.ema_decay=0 model.hidden_size=512 " + overrides);
    const size_t at = out.find(" MB more: ");
    const size_t parameters = out.find(" parameters in ");
    double weights = 0, needed = 0;
    std::sscanf(out.c_str() + out.find(": ", parameters), ": %lf", &weights);
    std::sscanf(out.c_str() + out.rfind(' ', at - 1), "%lf", &needed);
    const size_t end = out.find('\n', at);
    const std::string parts = out.substr(at + 10, end - at - 10);
    return std::pair(needed / weights, parts);
  };
  const auto expect = [&](const std::string& overrides, double times, const std::string& text) {
    const auto [ratio, parts] = said(overrides);
    EXPECT_NEAR(ratio, times, 0.02 * times) << overrides << ": " << parts;
    EXPECT_THAT(parts, HasSubstr(text)) << overrides;
  };
  expect("'training.optimizer={name: sgd}'", 1, "; sgd keeps nothing");
  expect("'training.optimizer={name: momentum}'", 2, ", 1 state of momentum ");
  expect("'training.optimizer={name: adagrad}'", 2, ", 1 state of adagrad ");
  expect("'training.optimizer={name: adadelta}'", 3, ", 2 states of adadelta ");
  expect("'training.optimizer={name: adam}'", 3, ", 2 states of adam ");
  expect("'training.optimizer={name: adamw}' training.ema_decay=0.9", 4, ", averages ");
  // The parameters and gradients are bfloat16, all else is float32.
  expect("'training.optimizer={name: adam}' device=cuda dtype=bfloat16", 7, ", float32 masters ");
  expect("'training.optimizer={name: adam}' device=cpu dtype=bfloat16", 7, ", float32 masters ");
}

TEST_F(FiguresTest, GradcheckSaysWhatItReplaced) {
  const auto said = [&](const std::string& overrides) {
    return folder_.output("gradcheck clm.yaml --filter 'model of ' " + overrides);
  };
  EXPECT_THAT(
      said("model.hidden_act=relu model.num_hidden_layers=5"),
      AllOf(HasSubstr("model.hidden_size 16 -> 8, "), HasSubstr("model.hidden_act relu -> gelu"),
            HasSubstr("model.num_hidden_layers 5 -> 2")));
  EXPECT_THAT(said("model.hidden_act=silu"), Not(HasSubstr("hidden_act")));
}

}  // namespace
}  // namespace tapestry
