#include "apps/commands/pages/attention_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tapestry {
namespace {

using testing::HasSubstr;

AttentionPage page_of_words() {
  AttentionPage page;
  page.title = "</script> a";
  page.axes = {{"source", {"</script>", "a&b"}}, {"target", {"\u2581x"}}};
  page.maps.push_back({"decoder layer 1, cross-attention", 1, 0,
                       Tensor::from<float>({0.25f, 0.75f, 1.0f, 0.0f}, {2, 1, 2})});
  return page;
}

TEST(AttentionHtml, HoldsLabelsAndWeightsAndNothingThatEndsTheScript) {
  const std::string html = attention_html({page_of_words()});
  EXPECT_THAT(html, HasSubstr(R"("axes":[["\u003c/script>","a&b"],[")"));
  EXPECT_THAT(html, HasSubstr("\u2581x"));
  EXPECT_THAT(html, HasSubstr(R"("rows":1,"columns":0,"heads":[[[250,750]],[[1000,0]]])"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  // One for the data, two for what reads it.
  size_t scripts = 0;
  for (size_t at = 0; (at = html.find("</script>", at)) != std::string::npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 3u);
}

TEST(AttentionHtml, HoldsTheImage) {
  AttentionPage page = page_of_words();
  page.image = {1, 2, 1, {7, 255}, 1};
  EXPECT_THAT(attention_html({page}),
              HasSubstr(R"("image":{"height":1,"width":2,"patch_size":1,"png":"iVBORw0KGgo)"));
}

TEST(AttentionJson, IsATableOfNamedTokensAndWeights) {
  AttentionPage page = page_of_words();
  page.maps[0].weights = Tensor::from<double>({1.0 / 3, 2.0 / 3, 1, 0}, {2, 1, 2});
  const auto json = nlohmann::json::parse(attention_json({page, page}));
  ASSERT_EQ(json.at("pages").size(), 2u);
  const auto& first = json["pages"][0];
  EXPECT_EQ(first.at("title"), "</script> a");
  EXPECT_EQ(first.at("axes"),
            nlohmann::json::parse(R"([{"name": "source", "tokens": ["</script>", "a&b"]},
                                      {"name": "target", "tokens": ["▁x"]}])"));
  EXPECT_EQ(first.at("maps"), nlohmann::json::parse(R"([
      {"name": "decoder layer 1, cross-attention", "rows": "target", "columns": "source",
       "heads": [[[0.333333, 0.666667]], [[1.0, 0.0]]]}])"));
  EXPECT_FALSE(first.contains("image"));
}

TEST(AttentionJson, HasTheScoresBeforeAndAfterScaling) {
  AttentionPage page = page_of_words();
  page.maps[0].products = Tensor::from<double>({2, 4, 6, 8}, {2, 1, 2});
  page.maps[0].scores = Tensor::from<double>({1, 2, 3, -INFINITY}, {2, 1, 2});
  const auto map = nlohmann::json::parse(attention_json({page}))["pages"][0]["maps"][0];
  EXPECT_EQ(map.at("products"), nlohmann::json::parse("[[[2.0, 4.0]], [[6.0, 8.0]]]"));
  EXPECT_EQ(map.at("scores"), nlohmann::json::parse("[[[1.0, 2.0]], [[3.0, null]]]"));
}

}  // namespace
}  // namespace tapestry
