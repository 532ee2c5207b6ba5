// The rows of layers and models in the gradient table.
#include "nn/gradcheck/models.h"
#include "tests/autograd/support.h"

namespace tapestry {

void PrintTo(const GradcheckCase& test, std::ostream* out) { *out << test.name; }

namespace {

class ModelGradcheck : public ::testing::TestWithParam<GradcheckCase> {};

TEST_P(ModelGradcheck, EqualsFiniteDifferences) {
  const GradcheckCase& row = GetParam();
  ASSERT_LE(row.tolerance, 1e-6);
  const test::WithThreads one(1);  // for tiny products threads cost more than they save
  const GradcheckResult result = gradcheck(row);
  EXPECT_TRUE(result.passed) << result.worst_error << " at " << result.worst_place;
  EXPECT_GE(result.elements, static_cast<int64_t>(row.inputs.size()));
}

TEST_P(ModelGradcheck, EveryInputGetsAGradient) {
  const GradcheckCase& row = GetParam();
  Tape tape;
  const Var y = row.function();
  tape.backward(y, test::uniform(y.shape(), 1));
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    ASSERT_TRUE(row.inputs[i].grad().defined()) << "input " << i;
    EXPECT_GT(
        test::distance(row.inputs[i].grad(), Tensor::zeros(row.inputs[i].shape(), DType::kFloat64)),
        1e-6)
        << "input " << i;
    row.inputs[i].zero_grad();
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ModelGradcheck, ::testing::ValuesIn(model_gradchecks()),
                         [](const auto& info) { return test::identifier(info.param.name); });

}  // namespace
}  // namespace tapestry
