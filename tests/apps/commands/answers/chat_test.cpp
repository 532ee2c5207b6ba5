// Talks from training to the answers: generate --chat and --jsonl, and the template's way home.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using OrderedJson = nlohmann::ordered_json;
using testing::HasSubstr;

class ChatTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TinyRunFolder("chat");
    trained_ = folder_->train("chat", "run", {"training.max_steps=60", "training.save_steps=60"});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  void SetUp() override { ASSERT_EQ(trained_, 0) << folder_->messages(); }

  static TinyRunFolder* folder_;
  static int trained_;
};
TinyRunFolder* ChatTest::folder_ = nullptr;
int ChatTest::trained_ = -1;

std::string line_of(const std::vector<std::pair<std::string, std::string>>& messages) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [role, content] : messages)
    list.push_back({{"role", role}, {"content", content}});
  return OrderedJson{{"id", 7}, {"messages", list}}.dump();
}

TEST_F(ChatTest, AddsAnAnswerToTheMessages) {
  const std::string first = line_of({{"user", "ba ce di"}});
  const auto outcome = folder_->run("generate --model run --jsonl --max-new-tokens 12",
                                    first + "\n\n{\"messages\": [{\"role\": 3}]}\n" + first + "\n");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[2], "");
  EXPECT_THAT(outcome.err,
              HasSubstr("line 3: message 1 of 'messages' must have a text as its role"));
  const OrderedJson answered = OrderedJson::parse(lines[0]);
  EXPECT_EQ(answered["id"], 7);
  ASSERT_EQ(answered["messages"].size(), 2u);
  EXPECT_EQ(answered["messages"][1]["role"], "assistant");
  const auto content = answered["messages"][1]["content"].get<std::string>();
  EXPECT_FALSE(content.empty());
  EXPECT_EQ(content.find("<|"), std::string::npos) << content;  // the end is no part of it
  EXPECT_EQ(lines[0], lines[3]);
}

// Each line is answered with all before it, as the same talk in a record is.
TEST_F(ChatTest, KeepsTheHistoryOfATalk) {
  const auto outcome = folder_->run("generate --model run --chat --max-new-tokens 12",
                                    "ba ce di\n\nwhen\n/reset\nwhen\n");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), 3u) << outcome.out;
  const auto last = [&](const std::string& line) {
    const std::string out =
        folder_->output("generate --model run --jsonl --max-new-tokens 12", line);
    return OrderedJson::parse(out)["messages"].back()["content"].get<std::string>();
  };
  EXPECT_EQ(answers[0], last(line_of({{"user", "ba ce di"}})));
  EXPECT_EQ(answers[1],
            last(line_of({{"user", "ba ce di"}, {"assistant", answers[0]}, {"user", "when"}})));
  EXPECT_EQ(answers[2], last(line_of({{"user", "when"}})));
}

TEST_F(ChatTest, NeedsATemplate) {
  ASSERT_EQ(folder_->train("clm", "text", {"training.max_steps=1"}), 0) << folder_->messages();
  const auto outcome = folder_->run("generate --model text --chat");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("expected a model with a chat template"));
}

TEST_F(ChatTest, ATemplateThatIsNoneStopsTheTraining) {
  folder_->write("bad.jinja", "{% for m in messages %}\n{{ m. }}");
  folder_->forget_messages();
  EXPECT_EQ(folder_->train("chat", "bad", {"data.chat_template_path=bad.jinja"}), 2);
  EXPECT_THAT(folder_->messages(),
              HasSubstr("bad.jinja:2:7: expected a name after '.', got '}}'."));
}

// The template of a file is kept with the model, and exported.
TEST_F(ChatTest, TheTemplateGoesHome) {
  const std::string source =
      "{% for m in messages %}{{ '[' + m.role + '] ' + m.content + ' ## ' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}";
  folder_->write("own.jinja", source);
  ASSERT_EQ(
      folder_->train(
          "chat", "own",
          {"data.chat_template_path=own.jinja", "training.max_steps=2", "model.norm=rmsnorm",
           "model.norm_position=pre", "model.hidden_act=swiglu", "model.position_embedding=rope",
           "model.bias=false", "model.scale_embeddings=false", "tokenizer.byte_fallback=true",
           "tokenizer.vocab_size=300", "data.max_length=400", "training.batch_size=512",
           "model.max_position_embeddings=512"}),
      0)
      << folder_->messages();
  std::filesystem::remove(folder_->path("own.jinja"));
  folder_->output("export --model own --output home");
  EXPECT_EQ(read_file(folder_->path("home/chat_template.jinja")), source);
  folder_->output("import home --output back");
  const std::string ask = " --jsonl --beam-size 1 --no-do-sample --max-new-tokens 8";
  const std::string talk = line_of({{"user", "ba ce di"}});
  EXPECT_EQ(folder_->output("generate --model back" + ask, talk),
            folder_->output("generate --model own" + ask, talk));
}

}  // namespace
}  // namespace tapestry
