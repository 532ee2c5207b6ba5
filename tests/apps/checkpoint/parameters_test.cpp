// Parameters out of a file, which may hold the tensors that a model came with and nothing else.
#include "apps/checkpoint/parameters.h"

#include <gmock/gmock.h>

#include "apps/checkpoint/model_bundle.h"
#include "apps/config/task.h"
#include "tests/apps/checkpoint_bytes.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

std::string error_of(std::vector<TensorToWrite> tensors, const CarriedTensors& carried) {
  ParamStore store;
  const Var own = store.root().create("a", {2}, Init::zeros());
  tensors.emplace_back("a", Tensor::full({2}, 1, DType::kFloat32));
  try {
    load_parameters(store, TensorReader(source_of(safetensors_bytes(tensors, {}), "m.st")),
                    carried);
    EXPECT_EQ(own.value().data<float>()[1], 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "";
}

TEST(Parameters, OnlyTensorsThatMayBeCarriedStandBesideThem) {
  const std::vector<TensorToWrite> pooler = {
      {"pooler.bias", Tensor::full({3}, 1, DType::kFloat32)}};
  EXPECT_EQ(error_of({}, {}), "");
  EXPECT_THAT(error_of(pooler, {}), HasSubstr("has pooler.bias, the model has no such parameter."));
  EXPECT_EQ(error_of(pooler, {{"pooler.bias", {3}}}), "");
  EXPECT_EQ(error_of(pooler, {{"pooler.bias", {4}}}),
            "[checkpoint] pooler.bias is (3) in m.st, expected (4).");
}

TEST(Parameters, AnEncoderWithoutClassesMayCarryAPooler) {
  const auto carries = [](const char* task) {
    return !carried_tensors(default_config(*find_task(task))).empty();
  };
  EXPECT_TRUE(carries("mlm"));
  EXPECT_TRUE(carries("embedding"));
  for (const char* task : {"clm", "translation", "classification", "question_answering"}) {
    EXPECT_FALSE(carries(task)) << task;
  }
}

}  // namespace
}  // namespace tapestry
