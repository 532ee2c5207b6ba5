// Tapestry as a library: a model of our own, its gradients checked, trained. CMakeLists.txt beside
// this file is all that a project needs.
#include <cstdio>

#include "autograd/gradcheck.h"
#include "nn/layers/layers.h"
#include "optim/optimizer.h"

using namespace tapestry;

// Two dense layers. Their parameters are named hidden.weight, hidden.bias, output.weight and
// output.bias.
struct TwoLayers {
  explicit TwoLayers(const ParamScope& scope)
      : hidden({.in = 2, .out = 8, .activation = Activation::kGelu}, scope / "hidden"),
        output({.in = 8, .out = 2}, scope / "output") {}

  Var operator()(const Var& x) const { return output(hidden(x)); }  // (B, 2) -> (B, 2)

  Linear hidden, output;
};

// Exclusive or: no single layer can learn it.
const Tensor inputs = Tensor::from<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
const Tensor labels = Tensor::from<int32_t>({0, 1, 1, 0}, {4});

bool gradients_are_right() {
  ParamStore store(/*seed=*/1, DType::kFloat64);
  const TwoLayers model(store.root());
  GradcheckCase test{.name = "two layers", .inputs = {}, .function = [&] {
                       return cross_entropy(model(inputs.to(DType::kFloat64)), labels).loss;
                     }};
  for (const auto& [name, parameter] : store.named()) test.inputs.push_back(parameter);
  const GradcheckResult result = gradcheck(test);
  std::printf("gradients: largest relative error %.1e\n", result.worst_error);
  return result.passed;
}

bool learns() {
  ParamStore store(/*seed=*/1);
  const TwoLayers model(store.root());
  Optimizer adam(optimizer_defaults(OptimizerType::kAdam), store.named());
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    Tape tape;  // records what is computed while it lives
    const Var mean = cross_entropy(model(inputs), labels).loss;
    tape.backward(mean);
    adam.step(/*learning_rate=*/0.02);
    adam.zero_grad();
    loss = mean.value().item();
    if (step % 100 == 0) std::printf("step %d: loss %.4f\n", step, loss);
  }
  std::printf("at last: loss %.4f\n", loss);
  return loss < 0.01;
}

int main() { return gradients_are_right() && learns() ? 0 : 1; }
