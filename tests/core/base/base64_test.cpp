#include "core/base/base64.h"

#include <gtest/gtest.h>

namespace tapestry {
namespace {

// RFC 4648, section 10.
TEST(Base64, TestVectorsOfTheStandard) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xef\xbe"), "/+++");
}

}  // namespace
}  // namespace tapestry
