// A number that is none is put where an operation of a model writes, forward and on the way back,
// in place after place: the search names that operation each time, and nothing where all is well.
#include "autograd/first_not_finite.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void plant(const Tensor& value, int64_t element, double what) {
  if (value.dtype() == DType::kFloat32) {
    value.data<float>()[element] = static_cast<float>(what);
  } else {
    value.data<double>()[element] = what;
  }
}

/// Where operations write: an operation's number, and which way.
struct Place {
  int64_t number = 0;
  bool backward = false;
  std::string operation;
};

/// Puts a number at one place of the pass, after the operation there has written; without a place
/// it only notes all that there are.
class Planter : public TapeObserver {
 public:
  Planter() : TapeObserver(/*backward=*/true) {}
  Planter(const Place& place, double what)
      : TapeObserver(/*backward=*/true), place_(place), what_(what) {}

  void computed(const TapeOperation& operation, std::span<const Var* const>,
                std::span<const Var* const> outputs, bool) override {
    const Tensor& value = outputs.back()->value();
    const Place here{operation.number, false, operation.name.str()};
    places_.push_back(here);
    if (is(here)) plant(value, value.numel() / 2, what_);
  }
  void walked_back(const TapeOperation& operation,
                   std::span<const std::shared_ptr<Gradient>> gradients) override {
    for (const auto& gradient : gradients) {
      if (!gradient->value().defined()) continue;
      const Place here{operation.number, true, operation.name.str()};
      places_.push_back(here);
      if (is(here)) plant(gradient->value(), gradient->value().numel() - 1, what_);
      return;
    }
  }
  const std::vector<Place>& places() const { return places_; }

 private:
  bool is(const Place& here) const {
    return place_ && place_->number == here.number && place_->backward == here.backward;
  }

  std::optional<Place> place_;
  double what_ = 0;
  std::vector<Place> places_;
};

/// The places that were planted at.
template <class Loss>
int64_t expect_all_named(const ParamStore& store, const Loss& loss, int64_t most) {
  std::vector<Place> places;
  {
    const Planter notes;
    const FirstNotFinite search(store.named());
    test::train_pass(store, loss);
    places = notes.places();
    EXPECT_FALSE(search.finding()) << search.finding()->str();
  }
  const auto step = std::max<int64_t>(1, std::ssize(places) / most);
  int64_t planted = 0;
  for (int64_t i = 0; i < std::ssize(places); i += step, ++planted) {
    const Place& place = places[static_cast<size_t>(i)];
    const double what = i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                   : std::numeric_limits<double>::infinity();
    const Planter planter(place, what);
    const FirstNotFinite search(store.named());
    test::train_pass(store, loss);
    const auto& found = search.finding();
    EXPECT_TRUE(found) << place.number;
    if (!found) continue;
    EXPECT_EQ(found->number, place.number) << found->str();
    EXPECT_EQ(found->backward, place.backward) << found->str();
    EXPECT_EQ(found->operation, place.operation) << found->str();
    EXPECT_EQ(found->count, 1) << found->str();
  }
  return planted;
}

TEST(FirstNotFiniteTest, NamesEachOfHundredPlaces) {
  const EncoderDecoder::Batch pairs = test::batch_of({5, 3, 7}, {4, 6, 2}, 7, 7);
  int64_t planted = 0;
  for (const bool recompute : {false, true}) {
    ModelOptions options = test::with_dropout(test::pre_norm_options());
    options.recompute = recompute;
    const test::SmallModel small(options, DType::kFloat32);
    planted += expect_all_named(
        small.store, [&] { return small.model.loss(pairs, {.label_smoothing = 0.1}).loss; }, 30);
  }
  for (const ModelOptions& options : {test::llama_options(), test::gpt2_options()}) {
    const test::SmallLanguageModel small(options, /*causal=*/true);
    const LanguageModel::Batch batch = test::text_batch({7, 4, 9}, 9, /*causal=*/true);
    planted += expect_all_named(
        small.store, [&] { return small.model.loss(batch, {}).loss; }, 30);
  }
  EXPECT_GE(planted, 100);
}

TEST(FirstNotFiniteTest, SaysWhereInTheModelAndInTheTensor) {
  const test::SmallLanguageModel small(test::gpt2_options(), /*causal=*/true);
  const LanguageModel::Batch batch = test::text_batch({7, 4, 9}, 9, /*causal=*/true);
  const NamedVars all = small.store.named();
  const auto weight = std::ranges::find_if(
      all, [](const auto& entry) { return entry.first.find("layers.1.") != std::string::npos; });
  ASSERT_NE(weight, all.end());
  plant(weight->second.value(), 3, std::numeric_limits<double>::quiet_NaN());
  const FirstNotFinite search(all);
  test::train_pass(small.store, [&] { return small.model.loss(batch, {}).loss; });
  ASSERT_TRUE(search.finding());
  EXPECT_THAT(search.finding()->parameters, HasSubstr(weight->first));
  EXPECT_EQ(search.finding()->input, weight->first);
  EXPECT_THAT(search.finding()->str(),
              AllOf(HasSubstr("forward, operation "), HasSubstr(weight->first),
                    HasSubstr("which is not finite either")));
}

// Looking on changes no bit.
TEST(FirstNotFiniteTest, LeavesTheBits) {
  const test::SmallLanguageModel small(test::with_dropout(test::bert_options()), /*causal=*/false);
  const LanguageModel::Batch batch = test::text_batch({7, 4, 9}, 9, /*causal=*/false);
  const auto loss = [&] { return small.model.loss(batch, {}).loss; };
  const test::Pass alone = test::train_pass(small.store, loss);
  const FirstNotFinite search(small.store.named());
  EXPECT_TRUE(test::same_bits(alone, test::train_pass(small.store, loss)));
  EXPECT_FALSE(search.finding());
}

}  // namespace
}  // namespace tapestry
