// The page of `tapestry serve` in a browser.
#include <chrono>
#include <thread>

#include "tests/apps/browser.h"
#include "tests/apps/commands/serve/serve_client.h"

namespace tapestry {
namespace {

TEST_F(ServeTest, ItsPageTranslatesContinuesAndTalks) {
  if (Browser::installed().empty()) {
    GTEST_SKIP() << "no browser is installed (Debian's chromium): the page was not driven";
  }
  ServerProcess server(*folder_, {"--model", model("translation"), "--model", model("endless"),
                                  "--model", model("chat"), "--model", model("mlm"), "--model",
                                  model("classification"), "--model", model("questions")});
  const std::string source = sentences()[0];
  std::string expected = folder_->output("translate --model translation", source + "\n");
  expected.pop_back();
  Browser browser(Browser::installed(), folder_->path("profile"));
  const auto wait_until = [&](const std::string& condition) {
    for (int i = 0; i < 200; ++i) {
      if (browser.value(concat("!!(", condition, ")")) == true) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  const auto text = [&](const std::string& selector) {
    return concat("document.querySelector('", selector, "').textContent");
  };
  // Types into the first field as the only text.
  const auto type = [&](const std::string& words) {
    browser.value(
        concat("(() => { const node = document.querySelector('section textarea, section "
               "input'); node.value = ",
               ServedJson(words).dump(), "; node.dispatchEvent(new Event('input')); })()"));
  };
  const auto choose = [&](const std::string& part) {
    browser.value(
        concat("[...document.querySelectorAll('.group button')].find(button => "
               "button.textContent.startsWith('",
               part, "')).click()"));
  };
  for (const int width : {400, 1280}) {
    browser.resize(width, 800);
    browser.value("window.before = true");
    browser.value(concat("location.href = 'http://127.0.0.1:", server.port(), "/'"));
    ASSERT_TRUE(wait_until("!window.before && document.querySelector('section textarea')"))
        << width;
    EXPECT_LE(browser.value("document.documentElement.scrollWidth").get<int>(), width);
    type(source);
    EXPECT_TRUE(wait_until(concat(text(".answer"), " === ", ServedJson(expected).dump())))
        << browser.value(text(".answer"));
    browser.value("[...document.querySelectorAll('section button')].at(-1).click()");  // attention
    EXPECT_TRUE(wait_until("document.querySelectorAll('.heat td[title]').length > 1"));
    EXPECT_LE(browser.value("document.documentElement.scrollWidth").get<int>(), width);
    choose("Continue");
    type(source.substr(0, 8));
    browser.click("section button");
    EXPECT_TRUE(wait_until(
        concat(text("section button"), " === 'Continue' && ", text(".answer"), ".length > 8")));
    choose("Chat");
    type(source);
    browser.click("section form button");
    EXPECT_TRUE(wait_until("document.querySelectorAll('.said').length === 2"));
    choose("Fill masks");
    type("<mask>" + source.substr(source.find(' ')));
    EXPECT_TRUE(wait_until("document.querySelectorAll('.answer tr').length === 5"));
    choose("Classify");
    type(source);
    EXPECT_TRUE(wait_until("document.querySelectorAll('.answer tr').length > 1"));
    EXPECT_LE(browser.value("document.documentElement.scrollWidth").get<int>(), width);
    // Each field and each button has a name.
    EXPECT_EQ(browser.value("[...document.querySelectorAll('textarea, input')].filter(node => "
                            "!node.labels.length).length"),
              0);
  }
  EXPECT_THAT(browser.complaints(), testing::IsEmpty());
}

}  // namespace
}  // namespace tapestry
