// A listener hears of a parameter's gradient once, when nothing can be added to it any more.
#include <functional>
#include <map>

#include "autograd/recompute.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::error_of;
using test::parameter;
using test::same_bits;
using test::uniform;

// Takes every gradient as soon as it hears of it, as the exchange does: what came later would be
// missing.
class Collector final : public GradientListener {
 public:
  explicit Collector(const NamedVars& params) : params_(params) {
    for (const auto& [name, var] : params_) var.set_listener(this);
  }
  ~Collector() override {
    for (const auto& [name, var] : params_) var.set_listener(nullptr);
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  void complete(Gradient& gradient) override {
    for (const auto& [name, var] : params_) {
      if (var.gradient().get() != &gradient) continue;
      order.push_back(name);
      gradients[name] = gradient.filled() ? gradient.take() : Tensor();
    }
  }

  std::vector<std::string> order;
  std::map<std::string, Tensor> gradients;

 private:
  NamedVars params_;
};

using Function = std::function<Var()>;

std::map<std::string, Tensor> plain_gradients(const NamedVars& params, const Function& f) {
  for (const auto& [name, var] : params) var.zero_grad();
  Tape tape({.seed = 3});
  const Var y = f();
  tape.backward(y, uniform(y.shape(), 9));
  std::map<std::string, Tensor> gradients;
  for (const auto& [name, var] : params) {
    gradients[name] = var.grad().defined() ? var.grad().clone() : Tensor();
    var.zero_grad();
  }
  return gradients;
}

// The listener hears of every parameter of `reached` once, and gets the gradients of a plain pass.
std::vector<std::string> expect_once(const NamedVars& params, const Function& f) {
  const auto expected = plain_gradients(params, f);
  Collector collector(params);
  {
    Tape tape({.seed = 3});
    const Var y = f();
    EXPECT_TRUE(collector.order.empty());
    tape.backward(y, uniform(y.shape(), 9));
  }
  size_t reached = 0;
  for (const auto& [name, var] : params) {
    const auto heard = std::count(collector.order.begin(), collector.order.end(), name);
    EXPECT_FALSE(var.grad().defined()) << name << " got more after it was complete";
    if (!expected.at(name).defined()) continue;
    ++reached;
    EXPECT_EQ(heard, 1) << name;
    if (heard == 0) continue;
    EXPECT_TRUE(same_bits(collector.gradients.at(name), expected.at(name))) << name;
  }
  EXPECT_EQ(collector.order.size(), reached);
  return collector.order;
}

struct Leaves {
  Var x = parameter({4, 6}, 1), w = parameter({6, 6}, 2), v = parameter({6, 6}, 3);
  Var b = parameter({6}, 4);
  NamedVars named() const { return {{"x", x}, {"w", w}, {"v", v}, {"b", b}}; }
};

TEST(Listener, HearsOfTheLastLayerFirst) {
  const Leaves l;
  const auto order =
      expect_once(l.named(), [&l] { return linear(gelu(linear(l.x, l.w, l.b)), l.v); });
  EXPECT_EQ(order.front(), "v");
}

// The classifier shares the table of the embedding: complete only at the very end.
TEST(Listener, TiedWeights) {
  const Leaves l;
  const auto order = expect_once(
      l.named(), [&l] { return linear(gelu(linear(gelu(linear(l.x, l.w)), l.v)), l.w); });
  EXPECT_EQ(order.front(), "v");
}

TEST(Listener, AnInputUsedTwiceByOneOperation) {
  const Leaves l;
  expect_once({{"x", l.x}}, [&l] { return l.x * l.x + l.x; });
}

// As many uses as steps.
TEST(Listener, RecurrentUses) {
  const Leaves l;
  for (const int steps : {1, 2, 7}) {
    expect_once({{"w", l.w}, {"b", l.b}, {"x", l.x}}, [&l, steps] {
      Var h = l.x;
      for (int t = 0; t < steps; ++t) h = gelu(linear(h, l.w, l.b) + l.x);
      return h;
    });
  }
}

TEST(Listener, Recompute) {
  const Leaves l;
  expect_once(l.named(), [&l] {
    const Var h = recompute([&l] { return dropout(gelu(linear(l.x, l.w, l.b)), 0.2); });
    return recompute([&l, h] { return linear(h, l.w) * linear(h, l.v); });
  });
}

// w is used inside of the innermost, between, and outside.
TEST(Listener, NestedRecompute) {
  const Leaves l;
  expect_once(l.named(), [&l] {
    const Var y = recompute([&l] {
      const Var inner = recompute([&l] { return gelu(linear(l.x, l.w, l.b)); });
      const Var twice = recompute([&l, inner] {
        return recompute([&l, inner] { return linear(inner, l.v) * linear(inner, l.w); });
      });
      return linear(twice, l.w);
    });
    return linear(y, l.w) + l.x;
  });
}

TEST(Listener, FrozenParametersAreSilent) {
  const Leaves l;
  l.w.set_requires_grad(false);
  const auto order = expect_once(l.named(), [&l] {
    return recompute([&l] { return linear(gelu(linear(l.x, l.w, l.b)), l.v); });
  });
  EXPECT_EQ(std::count(order.begin(), order.end(), "w"), 0);
  EXPECT_EQ(order.size(), 3u);
}

TEST(Listener, WhatIsNotUsedIsSilent) {
  const Leaves l;
  EXPECT_EQ(expect_once(l.named(), [&l] { return linear(l.x, l.w); }).size(), 2u);
}

// A value that nothing depends on gets no gradient: its parameters are complete, and empty.
TEST(Listener, UsesThatNoGradientReaches) {
  const Leaves l;
  Collector collector(l.named());
  Tape tape;
  const Var y = linear(l.x, l.w);
  const Var unused = linear(l.x, l.v, l.b);
  tape.backward(y, uniform(y.shape(), 9));
  EXPECT_EQ(collector.order.size(), 4u);
  EXPECT_TRUE(collector.gradients.at("w").defined());
  EXPECT_FALSE(collector.gradients.at("v").defined());
  EXPECT_FALSE(collector.gradients.at("b").defined());
}

// A pass without backward, or one that threw, leaves no use behind.
TEST(Listener, AbandonedTapesLeaveNothing) {
  const Leaves l;
  Collector collector(l.named());
  {
    const Tape tape;
    const Var y = recompute([&l] { return linear(l.x, l.w); }) + linear(l.x, l.v);
    EXPECT_THROW(recompute([&l]() -> Var {
                   linear(l.x, l.w);
                   throw Error(ErrorKind::kRuntime, "no");
                 }),
                 Error);
  }
  EXPECT_TRUE(collector.order.empty());
  Tape tape;
  const Var y = linear(l.x, l.w);
  tape.backward(y, uniform(y.shape(), 9));
  EXPECT_EQ(collector.order.size(), 2u);
}

TEST(Listener, IsSetBetweenPassesOnParametersOnly) {
  const Leaves l;
  Collector collector(l.named());
  const Tape tape;
  const Var y = linear(l.x, l.w);
  EXPECT_NE(error_of([&] { l.w.set_listener(nullptr); }), "");
  EXPECT_NE(error_of([&] { Var(l.w.value()).set_listener(&collector); }), "");
  l.v.set_listener(nullptr);
}

}  // namespace
}  // namespace tapestry
