#include "apps/commands/attention_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(AttentionHtml, HoldsLabelsAndWeightsAndNothingThatEndsTheScript) {
  AttentionPage page;
  page.source = {"</script>", "a&b"};
  page.target = {"\u2581x"};
  page.maps.push_back({"decoder layer 1, cross-attention", false, true,
                       Tensor::from<float>({0.25f, 0.75f, 1.0f, 0.0f}, {2, 1, 2})});
  const std::string html = attention_html({page});
  EXPECT_THAT(html, HasSubstr(R"("source":["\u003c/script>","a&b"])"));
  EXPECT_THAT(html, HasSubstr("\u2581x"));
  EXPECT_THAT(html, HasSubstr(R"("heads":[[[250,750]],[[1000,0]]])"));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_EQ(html.find("</script>"), html.rfind("</script>"));
}

}  // namespace
}  // namespace tapestry
