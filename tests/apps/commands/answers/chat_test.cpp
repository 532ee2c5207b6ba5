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
  // Nothing is left to answer in a talk that ends with an answer.
  const auto ended = folder_->run("generate --model run --jsonl --max-new-tokens 12",
                                  first + "\n" + line_of({{"user", "ba"}, {"assistant", "ce"}}));
  EXPECT_EQ(lines_of(ended.out), (std::vector<std::string>{lines[0], ""}));
  EXPECT_THAT(ended.err, HasSubstr("line 2: the last message is the assistant's"));
  // Scores do not stand instead of the record.
  const auto detailed = OrderedJson::parse(
      folder_->output("generate --model run --jsonl --detail jsonl --max-new-tokens 12", first));
  EXPECT_EQ(detailed["record"], OrderedJson::parse(first));
  EXPECT_EQ(detailed["continuations"].size(), 1u);
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
// A call that the template does not write is not answered as if nobody had made it; a weight is for
// learning.
TEST_F(ChatTest, DoesNotLoseCallsOfTools) {
  const auto talk = [](const char* member) {
    return concat(R"({"messages": [{"role": "user", "content": "ba"}, {"role": "assistant", )",
                  R"("content": "ce", )", member, R"(}, {"role": "user", "content": "di"}]})",
                  "\n");
  };
  const auto outcome =
      folder_->run("generate --model run --jsonl --max-new-tokens 2",
                   talk(R"("weight": 0)") + talk(R"("tool_calls": [{"name": "f"}])"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0], "");
  EXPECT_EQ(lines[1], "");
  EXPECT_THAT(outcome.err, HasSubstr("line 2: message 2 of 'messages' has 'tool_calls', which the "
                                     "chat template"));
}

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

TEST_F(ChatTest, TheHistoryLosesWholeExchanges) {
  std::string said;
  for (int i = 0; i < 12; ++i) said += "ba ce di fo\n";
  const auto outcome = folder_->run("generate --model run --chat --max-new-tokens 12", said);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(lines_of(outcome.out).size(), 12u);
  EXPECT_THAT(outcome.err, HasSubstr("it forgets the oldest"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("is cut to its")));
}

TEST_F(ChatTest, RefusesOptionsOfLines) {
  for (const std::string option :
       {"--input in", "--samples 2", "--detail jsonl", "--n-best 2", "--ill-formed error",
        "--batch-size 2", "--attention page.html"}) {
    const auto outcome = folder_->run("generate --model run --chat " + option, "ba\n");
    EXPECT_EQ(outcome.code, 2) << option;
    EXPECT_THAT(outcome.err, HasSubstr("--chat excludes " + option.substr(0, option.find(' '))));
  }
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

// Before any work: no tokenizer is trained, no run folder made.
TEST_F(ChatTest, TheConfigKnowsThatATemplateIsBad) {
  folder_->write("bad.jinja", "{% for m in messages %}\n{{ m. }}");
  const auto outcome = folder_->run(
      "train chat.yaml output_dir=never "
      "data.chat_template_path=bad.jinja training.max_step=1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("bad.jinja:2:7: expected a name"));
  EXPECT_THAT(outcome.err, HasSubstr("training.max_step"));
  EXPECT_FALSE(std::filesystem::exists(folder_->path("never")));
  const auto both = folder_->run(
      "train chat.yaml output_dir=never "
      "data.chat_template_path=chat.jinja data.chat_template=chatml");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("exclude each other"));
}

// A vocabulary is learnt from what the template writes: ChatML does not take these talks.
TEST_F(ChatTest, TheVocabularyReadsTalksByTheTemplate) {
  folder_->write("parts.jinja",
                 "{% for m in messages %}{% if m.content is not none %}{{ '@' + m.role }}"
                 "{% for part in m.content %}{{ ' ' + part.text }}{% endfor %}{{ eos_token }}"
                 "{% endif %}{% endfor %}{% if add_generation_prompt %}@assistant{% endif %}");
  std::string talks;
  for (const char* word : {"ba", "ce", "di", "fo"}) {
    for (int i = 0; i < 8; ++i) {
      talks += concat(R"({"messages": [{"role": "system", "content": null}, {"role": "user", )",
                      R"("content": [{"type": "text", "text": ")", word,
                      R"( gu"}]}, {"role": "assistant", "content": [{"type": "text", "text": ")",
                      word, "\"}]}]}\n");
    }
  }
  folder_->write("parts.talks.jsonl", talks);
  const std::string data = "{jsonl: parts.talks.jsonl, messages_column: messages}";
  folder_->forget_messages();
  ASSERT_EQ(folder_->train("chat", "parts",
                           {"data.train=" + data, "data.valid=" + data, "training.max_steps=80",
                            "data.chat_template_path=parts.jinja", "tokenizer.byte_fallback=true",
                            "tokenizer.vocab_size=300", "model.max_position_embeddings=512",
                            "model.norm=rmsnorm", "model.norm_position=pre",
                            "model.hidden_act=swiglu", "model.position_embedding=rope",
                            "model.bias=false", "model.scale_embeddings=false"}),
            0)
      << folder_->messages();
  // The end is a token, which ends the answers, and no text of the vocabulary.
  const std::string talk =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "ba gu"}]}]})";
  const std::string ask = " --jsonl --no-do-sample --max-new-tokens 30 --detail jsonl";
  const auto answer = OrderedJson::parse(folder_->output("generate --model parts" + ask, talk));
  EXPECT_EQ(answer["continuations"][0]["finished"], true) << answer;
  EXPECT_EQ(answer["continuations"][0]["text"], " ba") << answer;
  EXPECT_EQ(answer["prompt"], "@user ba gu</s>@assistant");
  // The export says the same of both tokens, and of the end of an answer.
  folder_->output("export --model parts --output home_of_parts");
  const auto json = [&](const std::string& name) {
    return OrderedJson::parse(read_file(folder_->path("home_of_parts/" + name)));
  };
  EXPECT_EQ(json("tokenizer_config.json")["bos_token"], "</s>");
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "</s>");
  const OrderedJson tokenizer = json("tokenizer.json");
  for (const auto& [piece, id] : tokenizer["model"]["vocab"].items()) {
    EXPECT_TRUE(id <= 3 || piece.find("s>") == std::string::npos) << piece;
  }
}

// With everything learnt, talks need no answer.
TEST_F(ChatTest, ATalkWithoutAnAnswerIsTextToLearn) {
  folder_->write("asked.talks.jsonl", line_of({{"user", "ba ce di fo"}}) + "\n" +
                                          line_of({{"user", "fo gu ha je ki lo mu"}}) + "\n");
  const std::string data = "{jsonl: asked.talks.jsonl, messages_column: messages}";
  EXPECT_EQ(folder_->train("chat", "asked",
                           {"data.train=" + data, "data.valid=" + data, "training.max_steps=2",
                            "data.loss_on=text", "tokenizer.vocab_size=36"}),
            0)
      << folder_->messages();
}

// ChatML's marks are special tokens of the exported tokenizer, and end what it generates.
TEST_F(ChatTest, AVocabularyWithMarksGoesHome) {
  ASSERT_EQ(folder_->train("chat", "marked",
                           {"training.max_steps=2", "model.norm=rmsnorm", "model.norm_position=pre",
                            "model.hidden_act=swiglu", "model.position_embedding=rope",
                            "model.bias=false", "model.scale_embeddings=false"}),
            0)
      << folder_->messages();
  folder_->output("export --model marked --output home_of_marked");
  const auto json = [&](const std::string& name) {
    return OrderedJson::parse(read_file(folder_->path("home_of_marked/" + name)));
  };
  int32_t end = -1;
  const OrderedJson tokenizer = json("tokenizer.json");
  for (const OrderedJson& token : tokenizer["added_tokens"]) {
    if (token["content"] == "<|im_end|>") end = token["id"];
  }
  EXPECT_EQ(json("generation_config.json")["eos_token_id"], (OrderedJson{3, end}));
  folder_->output("import home_of_marked --output marked_again");
  const std::string ask = " --jsonl --beam-size 1 --no-do-sample --max-new-tokens 8";
  const std::string talk = line_of({{"user", "ba ce di"}});
  EXPECT_EQ(folder_->output("generate --model marked_again" + ask, talk),
            folder_->output("generate --model marked" + ask, talk));
}

// A run goes on with a template that changed meanwhile, and says so.
TEST_F(ChatTest, AnotherTemplateIsToldWhenARunGoesOn) {
  const std::string source =
      "{% for m in messages %}{{ '[' + m.role + '] ' + m.content + ' ## ' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}";
  folder_->write("now.jinja", source);
  const auto train = [&](int steps, std::vector<std::string> more) {
    more.push_back(concat("training.max_steps=", steps));
    folder_->forget_messages();
    const int code = folder_->train("chat", "going", more);
    EXPECT_EQ(code, 0) << folder_->messages();
    return folder_->messages();
  };
  const std::string path = "data.chat_template_path=now.jinja";
  const std::string told = "is not the chat template of the checkpoint";
  train(2, {path});
  EXPECT_THAT(train(3, {path}), testing::Not(HasSubstr(told)));
  // The same template at another place is the same.
  folder_->write("moved.jinja", source);
  EXPECT_THAT(train(4, {"data.chat_template_path=moved.jinja"}),
              testing::AllOf(testing::Not(HasSubstr(told)), testing::Not(HasSubstr("begins, wh"))));
  // Without a choice it is the model's own, whose vocabulary stays as it is.
  EXPECT_THAT(train(5, {}), testing::Not(HasSubstr(told)));
  folder_->write("now.jinja", source + " ");
  EXPECT_THAT(train(6, {path}), HasSubstr("now.jinja " + told));
  EXPECT_EQ(read_file(folder_->path("now.jinja")), source + " ");
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
