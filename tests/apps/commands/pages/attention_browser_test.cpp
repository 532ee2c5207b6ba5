// The page of attention weights in a browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/commands/pages/attention_file.h"
#include "tests/apps/browser.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class AttentionInBrowser : public testing::Test {
 protected:
  void SetUp() override {
    if (Browser::installed().empty()) {
      GTEST_SKIP() << "no browser is installed (Debian's chromium): the page was not driven";
    }
    std::filesystem::create_directories(folder_);
    browser_ = std::make_unique<Browser>(Browser::installed(), (folder_ / "profile").string());
    browser_->resize(1280, 900);
  }
  void TearDown() override {
    browser_.reset();
    std::filesystem::remove_all(folder_);
  }
  void open_pages(const std::vector<AttentionPage>& pages) {
    const std::filesystem::path path = folder_ / "page.html";
    std::ofstream(path) << attention_html(pages);
    browser_->open_page(path.string());
  }
  std::string text_of(const std::string& selector) {
    return browser_->value("document.querySelector('" + selector + "').textContent");
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / concat("tapestry-attention-", getpid());
  std::unique_ptr<Browser> browser_;
};

// A sentence of so many words in which each asks itself, by two heads and in two layers.
AttentionPage page_of(int64_t words) {
  AttentionPage page;
  page.title = concat(words, " words");
  std::vector<std::string> labels;
  for (int64_t i = 0; i < words; ++i) labels.push_back(concat("word", i));
  page.axes = {{"text", labels}};
  std::vector<float> weights(static_cast<size_t>(2 * words * words));
  for (int64_t i = 0; i < words; ++i) weights[static_cast<size_t>(i * words + i)] = 1;
  for (const int64_t i : {0, 1}) {
    weights[static_cast<size_t>(words * words + i * words)] = i == 0 ? 0.5f : 1;
  }
  for (const char* name : {"layer 1, self-attention", "layer 2, self-attention"}) {
    page.maps.push_back({name, 0, 0, Tensor::from(weights, {2, words, words})});
  }
  return page;
}

TEST_F(AttentionInBrowser, HeadsLayersAndALongSentence) {
  open_pages({page_of(8), page_of(300)});
  EXPECT_EQ(browser_->value("document.querySelectorAll('.thumb').length"), 6);
  EXPECT_THAT(text_of(".large"), HasSubstr("layer 1, self-attention, mean of 2 heads"));
  // The first cell: the mean of 1 and 0.5.
  const double first = 0.5 / 8;
  browser_->move_to(".map .inside .sizes > div:last-child canvas", first, first);
  EXPECT_EQ(text_of("#tip"), "“word0” asks “word0”: 75.0 %");
  browser_->click(".thumb[data-map='1'][data-head='1']");
  EXPECT_THAT(text_of(".large"), HasSubstr("layer 2, self-attention, head 2 of 2"));
  EXPECT_EQ(browser_->value("headChoice.value"), "1");
  // A long sentence scrolls inside its map.
  browser_->value("inputChoice.value = 1; inputChoice.dispatchEvent(new Event('change'))");
  EXPECT_EQ(text_of("p.title"), "300 words");
  browser_->value("document.querySelector('.map').scrollTo(400, 400)");
  EXPECT_EQ(browser_->value("document.querySelector('.map').scrollTop"), 400);
  EXPECT_LE(browser_->value("document.documentElement.scrollWidth").get<int>(), 1280);
  browser_->resize(400, 800);
  EXPECT_LE(browser_->value("document.documentElement.scrollWidth").get<int>(), 400);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(AttentionInBrowser, PatchesOverAnImage) {
  AttentionPage page;
  page.title = "picture.png";
  page.axes = {{"asks", {"CLS"}}, {"patches", {"CLS", "row 1, column 1", "row 1, column 2"}}};
  page.image = {2, 4, 1, {0, 50, 100, 150, 200, 250, 0, 50}, 2};
  page.maps.push_back({"layer 1", 0, 1, Tensor::from<float>({0.1f, 0.2f, 0.7f}, {1, 1, 3})});
  open_pages({page});
  browser_->move_to(".picture canvas", 0.75, 0.5);
  EXPECT_EQ(text_of("#tip"), "row 1, column 2: 70.0 %; the picture's own token: 10.0 %");
  EXPECT_EQ(browser_->value("new Promise(done => setTimeout(() => done(decoded(inputs[0].image)"
                            ".naturalWidth), 100))"),
            4);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

}  // namespace
}  // namespace tapestry
