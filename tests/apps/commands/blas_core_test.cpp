// OPENBLAS_CORETYPE, which many machine images export, and TAPESTRY_VECTORS: what the commands say
// about them.
#include <gmock/gmock.h>

#include "core/cpu/cpu_traits.h"
#include "tests/apps/tiny_runs.h"
#include "tests/environment_variable.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class BlasCoreTest : public testing::Test {
 protected:
  TinyRunFolder folder_{"blas_core"};

 private:
  // The binary inherits it.
  const EnvironmentVariable below_{"OPENBLAS_CORETYPE", "Prescott"};
};

size_t count(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++times;
  return times;
}

TEST_F(BlasCoreTest, OneBelowTheProcessorIsToldOnce) {
  if (!cpu_traits().avx) GTEST_SKIP() << "this processor has no better one";
  for (const char* command : {"bench clm.yaml --shape 4x12 --steps 1 --warmup-steps 0",
                              "train clm.yaml training.max_steps=1 output_dir=forced"}) {
    const auto outcome = folder_.run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(count(outcome.err, "OPENBLAS_CORETYPE"), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("warning: OPENBLAS_CORETYPE=Prescott forces SSE kernels"));
  }
}

TEST_F(BlasCoreTest, AnUnknownOneIsAnErrorBeforeWork) {
  const EnvironmentVariable unknown("OPENBLAS_CORETYPE", "Zen9");
  const auto trained = folder_.run("train clm.yaml output_dir=unknown");
  EXPECT_EQ(trained.code, 2);
  EXPECT_THAT(trained.err, StartsWith("error: [blas] OPENBLAS_CORETYPE is 'Zen9', a core that "));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("unknown")));
  EXPECT_EQ(folder_.run("bench clm.yaml --shape 4x12").code, 2);
}

TEST(VectorTargetTest, AnUnknownOneIsAnErrorBeforeWork) {
  const TinyRunFolder folder("vectors");
  const EnvironmentVariable unknown("TAPESTRY_VECTORS", "AVX9");
  const auto trained = folder.run("train clm.yaml output_dir=unknown");
  EXPECT_EQ(trained.code, 2);
  EXPECT_THAT(trained.err, StartsWith("error: [TAPESTRY_VECTORS] expected one of "));
  EXPECT_THAT(trained.err, HasSubstr(", got 'AVX9'."));
  EXPECT_FALSE(std::filesystem::exists(folder.path("unknown")));
}

}  // namespace
}  // namespace tapestry
