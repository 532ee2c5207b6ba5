// `tapestry bench --ops`: its rows, what they count, and tests/bench/compare.py, which reads them.
// No time is asserted.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "apps/commands/bench/operation.h"
#include "autograd/gradcheck.h"
#include "core/base/pattern.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

/// Cases of the gradient table without a row.
struct Untimed {
  const char* reason;
  std::vector<const char*> cases;  ///< names, or patterns with `*`
};
const Untimed kUntimed[] = {
    {"broadcasts as `add broadcast row`",
     {"add broadcast both", "mul broadcast", "div broadcast scalar"}},
    {"an operation with a row, on a value that is used twice or frozen",
     {"mul with itself", "used three times", "frozen operand", "slice twice", "linear of x and x",
      "residual layer_norm of x and x", "batch_norm of x times x, no beta", "embedding used twice",
      "embedding, its own positions", "attention, one value three times",
      "gru_step, gates used twice", "ssru twice", "additive_attention, keys are values",
      "linear_cross_entropy scaled"}},
    {"no function", {"none", "glu none", "linear none"}},
    {"the product of `linear`, and a function with a row", {"linear *"}},
    {"composed of operations with rows",
     {"softcap", "masked_fill trailing", "recompute", "attention_reference *",
      "additive_attention_reference*"}},
    {"moves nothing", {"reshape"}},
    {"one product of all rows, as `matmul`", {"matmul shared B", "matmul shared B, A^T"}},
    {"the same kernel, with one gradient more or less",
     {"residual layer_norm, both outputs", "residual layer_norm, sum only"}},
    {"the kernel of `attention packed qkv` or `packed kv`, whose rows have the config's heads",
     {"attention cross, lengths", "attention causal, offset", "attention grouped heads",
      "attention values of another size", "attention packed qkv, values of another size",
      "attention packed kv, values of another size"}},
    {"a mask or a bias read as in another row",
     {"attention boolean mask (B, T, S)", "attention additive mask (1, H, T, S)",
      "attention prefix", "attention relative bias, grouped, softcap, all masks",
      "attention of sequences, dropout"}},
    {"another option of a loss with a row",
     {"cross_entropy smoothed", "cross_entropy weighted", "linear_cross_entropy weighted",
      "linear_cross_entropy capped", "distilled_cross_entropy, temperature 2.5"}},
    {"steps of `gru`",
     {"gru, initial", "gru, both directions, lengths", "gru, both directions, lengths, initial"}},
    {"one query of `additive_attention, queries, lengths`", {"additive_attention"}},
};

std::set<std::string> names_of(const OperationRows& rows) {
  std::set<std::string> names;
  for (const OperationRow& row : rows) names.insert(row.name);
  return names;
}

TEST(BenchOperations, EveryGradientHasARowOrAReason) {
  std::set<std::string> timed, cases, used;
  for (const OperationSizes& sizes : shipped_operation_sizes()) {
    timed.merge(names_of(operations_of(sizes)));
  }
  for (const GradcheckCase& test : operation_gradchecks()) {
    cases.insert(test.name);
    if (timed.contains(test.name)) continue;
    bool listed = false;
    for (const Untimed& untimed : kUntimed) {
      for (const char* pattern : untimed.cases) {
        if (!matches(test.name, pattern)) continue;
        used.insert(pattern);
        listed = true;
      }
    }
    EXPECT_TRUE(listed) << test.name << " is neither timed by `bench --ops` nor listed here";
  }
  for (const std::string& name : timed) {
    EXPECT_TRUE(cases.contains(name)) << name << " is no case of the gradient table";
  }
  for (const Untimed& untimed : kUntimed) {
    for (const char* pattern : untimed.cases) {
      EXPECT_TRUE(used.contains(pattern)) << pattern << " has a row, or is no case any more";
    }
  }
}

TEST(BenchOperations, ShippedSizesAreThoseOfTheConfigs) {
  const std::map<std::string, std::string> shapes{
      {"multi30k_small", "128x32x32"}, {"shakespeare_char", "12x64"}, {"gpt2_124m", "4x256"}};
  ASSERT_EQ(shipped_operation_sizes().size(), shapes.size());
  for (const OperationSizes& shipped : shipped_operation_sizes()) {
    std::vector<std::string> overrides;
    // Tiny Shakespeare has 65 characters.
    if (shipped.config == "shakespeare_char") overrides = {"tokenizer.vocab_size=65"};
    const Config config = load_config(project_file(concat("configs/", shipped.config, ".yaml")),
                                      overrides, /*check_files=*/false);
    EXPECT_EQ(operation_sizes(config, shipped.config, shapes.at(shipped.config)), shipped)
        << shipped.config;
  }
}

/// The first row of this name.
OperationRow row_named(const OperationSizes& sizes, const std::string& name) {
  OperationRow found;
  int count = 0;
  for (OperationRow& row : operations_of(sizes)) {
    if (row.name == name && count++ == 0) found = std::move(row);
  }
  EXPECT_GE(count, 1) << name;
  return found;
}

constexpr int64_t kBatch = 3, kLength = 5, kHidden = 8, kIntermediate = 12, kHeads = 4, kGroups = 2;
OperationSizes small_sizes(int64_t source) {
  return {.config = "small",
          .batch = kBatch,
          .length = kLength,
          .source = source,
          .hidden = kHidden,
          .intermediate = kIntermediate,
          .heads = kHeads,
          .kv_heads = kGroups,
          .head_size = 2,
          .vocab = 11,
          .activation = Activation::kGelu};
}

// By the definition: each output is a sum of so many products.
TEST(BenchOperations, CountsTheWorkOfADenseLayer) {
  const OperationRow row = row_named(small_sizes(0), "linear gelu");
  double operations = 0;
  for (int64_t output = 0; output < kBatch * kLength * kIntermediate; ++output) {
    operations += 2 * kHidden;
  }
  EXPECT_EQ(row.forward.operations, operations);
  EXPECT_EQ(row.backward.operations, 2 * operations);  // dx = dz W and dW = dz^T x
  constexpr double x = kBatch * kLength * kHidden, w = kIntermediate * kHidden;
  constexpr double y = kBatch * kLength * kIntermediate;
  EXPECT_EQ(row.forward.moved, x + w + 2 * y);           // gelu's derivative needs z, which is kept
  EXPECT_EQ(row.backward.moved, 2 * x + 2 * w + 2 * y);  // dy and z are read
}

// Pairs of a query and a key that it sees, each of which costs a product of K numbers twice.
TEST(BenchOperations, CountsTheWorkOfAttention) {
  const auto pairs_of = [](auto sees) {
    double pairs = 0;
    for (int64_t query = 0; query < kLength; ++query) {
      for (int64_t key = 0; key < kLength; ++key) pairs += sees(query, key) ? 1 : 0;
    }
    return pairs * kBatch * kHeads;
  };
  constexpr int64_t kHeadSize = 2, kWindow = 1;  // a quarter of the length
  const auto check_pairs = [](const OperationRow& row, double pairs) {
    EXPECT_DOUBLE_EQ(row.forward.operations, 2 * pairs * 2 * kHeadSize) << row.name;
    EXPECT_DOUBLE_EQ(row.backward.operations, 5 * pairs * 2 * kHeadSize) << row.name;
  };
  const OperationSizes causal = small_sizes(0), full = small_sizes(kLength);
  check_pairs(row_named(causal, "attention packed qkv"),
              pairs_of([](int64_t q, int64_t k) { return k <= q; }));
  check_pairs(row_named(full, "attention packed qkv"),
              pairs_of([](int64_t, int64_t) { return true; }));
  check_pairs(row_named(causal, "attention window"),
              pairs_of([](int64_t q, int64_t k) { return k <= q && q - k < kWindow; }));
  check_pairs(row_named(full, "attention window"),
              pairs_of([](int64_t q, int64_t k) { return std::abs(q - k) < kWindow; }));
  const OperationRow row = row_named(causal, "attention packed qkv");
  constexpr double q = kBatch * kLength * kHeads * kHeadSize;
  constexpr double k = kBatch * kLength * kGroups * kHeadSize;
  EXPECT_EQ(row.forward.moved, q + k + k + q);             // q, k, v and the output
  EXPECT_EQ(row.backward.moved, 2 * (q + k + k) + q + q);  // their gradients; out and its gradient
}

class BenchOperationsCommand : public testing::Test {
 protected:
  /// The file that a table was written to.
  Json table(const std::string& arguments) const {
    const std::string said =
        folder_.output(concat("bench --ops --steps 1 --warmup-steps 0 --json ops ", arguments));
    Json figures = Json::parse(read_file(folder_.path("ops")));
    EXPECT_EQ(std::ranges::count(said, '\n'), std::ssize(figures) + 1 + std::ssize(figures["rows"]))
        << said;
    return figures;
  }
  /// tests/bench/compare.py on files of the folder.
  int compare(const std::string& arguments) const {
    const std::string line =
        concat("cd '", folder_.path(""), "' && python3 '", project_file("tests/bench/compare.py"),
               "' ", arguments, " > said 2>&1");
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string said() const { return read_file(folder_.path("said")); }

  TinyRunFolder folder_{"operations"};
};

TEST_F(BenchOperationsCommand, EveryRowRunsForwardAndBackward) {
  for (const std::string config :
       {"clm.yaml --shape 2x6", "translation.yaml --shape 2x5x4", "clm.yaml --shape 1x1",
        "clm.yaml --shape 2x6 --precision bfloat16", "clm.yaml --shape 2x6 dtype=bfloat16"}) {
    const Json figures = table(config + " --threads 2");
    EXPECT_EQ(figures.at("threads"), 2);
    EXPECT_EQ(figures.at("precision"),
              config.find("bfloat16") == std::string::npos ? "float32" : "bfloat16");
    EXPECT_GT(figures.at("products_gflops"), 0);
    EXPECT_GT(figures.at("memory_gb_per_s"), 0);
    std::set<std::string> names;
    for (const Json& row : figures.at("rows")) {
      names.insert(row.at("operation").get<std::string>());
      EXPECT_THAT(row.at("pass"), testing::AnyOf("forward", "backward"));
      EXPECT_GT(row.at("least_s"), 0) << row;
      EXPECT_GE(row.at("median_s"), row.at("least_s")) << row;
      EXPECT_GT(row.at("bytes"), 0) << row;
      const double share = row.at("share_of_limit").get<double>();
      EXPECT_TRUE(std::isfinite(share) && share > 0) << row;
      const double bytes_s =
          row.at("bytes").get<double>() / figures["memory_gb_per_s"].get<double>();
      const double products_s =
          row.at("operations").get<double>() / figures["products_gflops"].get<double>();
      EXPECT_EQ(row.at("limit"), products_s > bytes_s ? "products" : "memory") << row;
      EXPECT_NEAR(share * row.at("median_s").get<double>(), 1e-9 * std::max(products_s, bytes_s),
                  1e-9 * std::max(products_s, bytes_s));
    }
    EXPECT_GE(names.size(), 60u) << config;
  }
}

TEST_F(BenchOperationsCommand, WithoutAConfigItTakesThreeShippedOnes) {
  std::set<std::string> configs;
  const Json figures = table("--filter gru_step");
  for (const Json& row : figures.at("rows")) {
    EXPECT_EQ(row.at("operation"), "gru_step");
    configs.insert(row.at("config").get<std::string>());
  }
  EXPECT_THAT(configs, testing::ElementsAre("gpt2_124m", "multi30k_small", "shakespeare_char"));
}

TEST_F(BenchOperationsCommand, MistakesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"--ops --shape 2x3", "[bench] --shape needs a config, got '2x3'."},
      {"--ops --filter softmix", "[bench] no operation holds 'softmix' in its name."},
      {"--ops clm.yaml --shape 2x3x4", "[bench] --shape must be ROWSxTOKENS, got '2x3x4'."},
      {"--ops images.yaml", "[bench] --ops takes sizes from a Transformer of texts"},
      {"--ops --precision float16", "--precision"},
      {"--filter softmax clm.yaml", "--ops"},
      {"--ops --decode clm.yaml", "--decode"},
      {"--decode", "config"},
      {"--steps 1", "[bench] expected a config, got none"}};
  for (const auto& [arguments, message] : mistakes) {
    const auto outcome = folder_.run("bench " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << '\n' << outcome.out;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("error: "), HasSubstr(message))) << arguments;
  }
}

TEST_F(BenchOperationsCommand, TwoTablesAreCompared) {
  Json before = table("clm.yaml --shape 2x6 --filter soft");
  const auto write = [&](const char* name, const Json& figures) {
    folder_.write(name, figures.dump());
  };
  write("before", before);
  ASSERT_GE(before["rows"].size(), 4u);
  EXPECT_EQ(compare("--against before before"), 0) << said();
  EXPECT_THAT(said(), Not(HasSubstr("SLOWER")));

  Json now = before;
  const auto slower = [&](double ratio) {
    now["rows"][1]["least_s"] = before["rows"][1]["least_s"].get<double>() / ratio;
    write("now", now);
  };
  slower(0.85);
  EXPECT_EQ(compare("--against before now"), 1);
  EXPECT_THAT(said(), AllOf(HasSubstr("  0.85  softmax, backward, clm, (2, "),
                            HasSubstr("  SLOWER than 0.9\n")));
  EXPECT_EQ(compare("--against before now --bound 0.8"), 0) << said();
  slower(0.95);
  EXPECT_EQ(compare("--against before now"), 0) << said();
  EXPECT_EQ(compare("--against before now --bound 1"), 1) << said();

  // Of several files the fastest round of each row counts.
  EXPECT_EQ(compare("--against before --now now before --bound 1"), 0) << said();
  EXPECT_EQ(compare("--against now before --now now --bound 1"), 1) << said();
  EXPECT_THAT(said(), Not(HasSubstr("warning: the machine")));
  Json busy = now;
  busy["memory_gb_per_s"] = 0.5 * before["memory_gb_per_s"].get<double>();
  write("busy", busy);
  EXPECT_EQ(compare("--against before busy"), 0) << said();
  EXPECT_THAT(said(), HasSubstr("warning: the machine was not as fast both times"));

  // A row that only one has is named, and is no failure.
  now["rows"][1]["operation"] = "softmux";
  write("now", now);
  EXPECT_EQ(compare("--against before now"), 0) << said();
  EXPECT_THAT(said(), AllOf(HasSubstr("only in before: softmax, backward, clm"),
                            HasSubstr("only in now: softmux, backward, clm")));

  // Refused.
  for (const char* fact : {"processor", "BLAS", "threads", "precision"}) {
    now = before;
    now[fact] = "other";
    write("now", now);
    EXPECT_EQ(compare("--against before now"), 2) << fact;
    EXPECT_THAT(said(), AllOf(HasSubstr("different machines"), HasSubstr(fact)));
  }
  now = before;
  now["commit"] = "other";
  write("now", now);
  EXPECT_EQ(compare("--against before now"), 0) << said();
  EXPECT_EQ(compare("--against before --now before now"), 2) << said();  // of two commits
  now["rows"] = Json::array();
  write("now", now);
  EXPECT_EQ(compare("--against before now"), 2) << said();
  EXPECT_EQ(compare("--against before missing"), 2) << said();
  EXPECT_EQ(compare("--against before clm.yaml"), 2) << said();
  EXPECT_EQ(compare("--against before"), 2) << said();
  EXPECT_EQ(compare("--against before before before"), 2) << said();
  EXPECT_EQ(compare("--now before"), 2) << said();
  EXPECT_EQ(compare("--ours true"), 2) << said();
}

}  // namespace
}  // namespace tapestry
