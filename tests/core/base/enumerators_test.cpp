#include "core/base/enumerators.h"

#include <gtest/gtest.h>

namespace tapestry {
namespace {

enum class Fruit { kApple, kPear, kPlum };

constexpr const char* name_of(Fruit fruit) {
  switch (fruit) {
    case Fruit::kApple:
      return "apple";
    case Fruit::kPear:
      return "pear";
    case Fruit::kPlum:
      return "plum";
  }
  return nullptr;
}

TEST(Enumerators, AreTheValuesThatHaveNames) {
  static_assert(enumerators<Fruit>() == std::array{Fruit::kApple, Fruit::kPear, Fruit::kPlum});
}

}  // namespace
}  // namespace tapestry
