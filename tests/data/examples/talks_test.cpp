#include "data/examples/talks.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/chat/lost_members.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// A word for each role, and one behind each message: "u hello ;".
constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content ~ ' ; ' }}{% endfor %}"
    "{% if add_generation_prompt %}a {% endif %}";
constexpr const char* kMarked =
    "{% for m in messages %}{{ m.role[0] ~ ' ' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} {% endfor %}";
constexpr const char* kTwoAnswers =
    R"({"messages": [{"role": "user", "content": "xxxx"}, {"role": "assistant", "content": "yy zzz"},)"
    R"( {"role": "user", "content": "x"}, {"role": "assistant", "content": "wwwww"}], "id": 3})";

class PlacedWords : public WordTokenizer {
 public:
  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string_view::npos;) {
      const size_t end = std::min(text.find(' ', at), text.size());
      tokens.push_back({encode(text.substr(at, end - at)).at(0), static_cast<int64_t>(at),
                        static_cast<int64_t>(end)});
      at = end;
    }
    return tokens;
  }
};

class Talks : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& bytes, const std::string& source = kPlain,
                  LossOn loss_on = LossOn::kAnswers) const {
    CorpusSpec spec;
    spec.records = {folder_.write("a.jsonl", bytes), &kJsonl};
    spec.messages_column = "messages";
    spec.chat = std::make_shared<const ChatFormat>(
        ChatFormat{ChatTemplate(source, "chat.jinja"), "{}", loss_on});
    return spec;
  }
  // What a batch of the only talk predicts: 0 where it does not.
  Ids learnt(const CorpusSpec& spec, CorpusOptions options = {}) const {
    const TalkCorpus corpus = load_talks({spec}, words_, options);
    BatchOptions rows;
    rows.shuffle = false;
    const BlockBatch batch = TalkBatches(corpus, rows).next();
    Ids targets = batch.targets.to_vector<int32_t>();
    EXPECT_EQ(batch.tokens, std::ranges::count_if(targets, [](int32_t t) { return t >= 0; }));
    for (int32_t& target : targets) target = std::max(target, 0);
    return targets;
  }
  std::string error_of(const CorpusSpec& spec) const {
    try {
      load_talks({spec}, words_, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TempFolder folder_;
  PlacedWords words_;  // a word's id is its length and 4
};

// Row: end, u xxxx ; a yy zzz ; u x ; a wwwww ;
TEST_F(Talks, LossIsOnTheAnswers) {
  EXPECT_EQ(learnt(spec(kTwoAnswers)), (Ids{0, 0, 0, 0, 6, 7, 5, 0, 0, 0, 0, 9, 5}));
  EXPECT_EQ(learnt(spec(kTwoAnswers, kPlain, LossOn::kLastAnswer)),
            (Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 5}));
  EXPECT_EQ(learnt(spec(kTwoAnswers, kPlain, LossOn::kText)),
            (Ids{5, 8, 5, 5, 6, 7, 5, 5, 5, 5, 5, 9, 5}));
}

// Row: end, u xxxx a yy zzz u x a wwwww, end: the template itself ends nothing.
TEST_F(Talks, GenerationBlocksTellTheAnswers) {
  EXPECT_EQ(learnt(spec(kTwoAnswers, kMarked)), (Ids{0, 0, 0, 6, 7, 0, 0, 0, 9, 3}));
  EXPECT_EQ(learnt(spec(kTwoAnswers, kMarked, LossOn::kLastAnswer)),
            (Ids{0, 0, 0, 0, 0, 0, 0, 0, 9, 3}));
}

TEST_F(Talks, LongOnesAreDroppedOrCutAtTheirBeginning) {
  CorpusOptions options;
  options.max_length = 8;
  EXPECT_THROW(learnt(spec(kTwoAnswers), options), Error);  // nothing is left
  options.overlong = "truncate";
  EXPECT_EQ(learnt(spec(kTwoAnswers), options), (Ids{5, 0, 0, 0, 0, 9, 5}));
  EXPECT_EQ(load_talks({spec(kTwoAnswers)}, words_, options).counts.truncated, 1);
  options.max_length = 3;  // the last answer has two tokens
  EXPECT_THROW(learnt(spec(kTwoAnswers), options), Error);
}

// Where everything is learnt, no answer must stay whole.
TEST_F(Talks, OfALongTalkThatIsLearntWholeTheEndIsKept) {
  CorpusOptions options;
  options.max_length = 3;
  options.overlong = "truncate";
  const CorpusSpec talks = spec(kTwoAnswers, kPlain, LossOn::kText);
  EXPECT_EQ(learnt(talks, options), (Ids{9, 5}));
  options.max_length = 8;
  EXPECT_EQ(learnt(talks, options), (Ids{5, 5, 5, 5, 5, 9, 5}));
  EXPECT_EQ(load_talks({talks}, words_, options).counts.truncated, 1);
}

// One of two members of one name would be lost, and with the name of a special token or of a
// function of templates it would change what the template writes for all others.
TEST_F(Talks, RecordsHideNothing) {
  const std::string good = std::string(kTwoAnswers) + "\n";
  const auto with = [&](const std::string& member) {
    return "{" + member + ", " + std::string(kTwoAnswers).substr(1) + "\n";
  };
  const TalkCorpus corpus =
      load_talks({spec(good + with(R"("eos_token": "x")") + with(R"("range": 1)") +
                       with(R"("id": 1)") + with(R"("chat_template_kwargs": [1])") +
                       with(R"("chat_template_kwargs": {"bos_token": "x"})") +
                       with(R"("chat_template_kwargs": {"deep": {"a": 1, "a": 2}})") +
                       with(R"("chat_template_kwargs": null)") +
                       with(R"("chat_template_kwargs": {"a": 1}, "more": [{"a": 1}, {"a": 1}])"))},
                 words_, {});
  EXPECT_EQ(corpus.size(), 3);
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 6);
  const auto reason = [&](const std::string& member) { return error_of(spec(with(member))); };
  EXPECT_THAT(reason(R"("eos_token": "x")"),
              HasSubstr("a.jsonl:1: the field 'eos_token' has the name of a special token"));
  EXPECT_THAT(reason(R"("id": 1)"), HasSubstr("a.jsonl:1: names 'id' twice."));
  EXPECT_THAT(reason(R"("chat_template_kwargs": [1])"),
              HasSubstr("'chat_template_kwargs' must be an object"));
}

// A call that the template does not write, and a message that should not be learnt.
TEST_F(Talks, MembersOfMessagesAreNotLost) {
  const auto talk = [](const std::string& member) {
    return R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y")" +
           member + "}]}\n";
  };
  const std::string call = R"(, "tool_calls": [{"name": "f"}])";
  EXPECT_THAT(error_of(spec(talk(call))),
              HasSubstr("a.jsonl:1: message 2 of 'messages' has 'tool_calls', which the chat "
                        "template chat.jinja does not read."));
  EXPECT_THAT(error_of(spec(talk(R"(, "weight": 0)"))),
              HasSubstr("has 'weight', which the chat template chat.jinja does not read; what is "
                        "learnt is said by data.loss_on"));
  for (const char* const none : {R"(, "tool_calls": [])", R"(, "tool_calls": null)",
                                 R"(, "weight": 1)", R"(, "weight": 1.0)", R"(, "name": "n")"}) {
    EXPECT_EQ(error_of(spec(talk(none))), "no error") << none;
  }
  const std::string reads = std::string(kPlain) + "{% if messages[0].tool_calls %}{% endif %}";
  EXPECT_EQ(error_of(spec(talk(call), reads.c_str())), "no error");
  for (const char* const name : {"function_call", "reasoning_content", "thinking"}) {
    const auto member = [&](const char* value) { return concat(", \"", name, "\": ", value); };
    EXPECT_THAT(error_of(spec(talk(member(R"("t")")))),
                HasSubstr(concat("has '", name, "', which")));
    EXPECT_EQ(error_of(spec(talk(member(R"("")")))), "no error");
    EXPECT_EQ(error_of(spec(talk(member("null")))), "no error");
    const auto with = [&](const std::string& word) { return concat(kPlain, "{# ", word, " #}"); };
    EXPECT_EQ(error_of(spec(talk(member(R"("t")")), with(name).c_str())), "no error");
    EXPECT_NE(error_of(spec(talk(member(R"("t")")), with(concat("no_", name)).c_str())),
              "no error");
  }
}

TEST_F(Talks, MembersOfRecordsAreNotLost) {
  const auto talk = [](const std::string& member) {
    return concat("{", member, ", ", std::string(kTwoAnswers).substr(1), "\n");
  };
  for (const char* const name : {"tools", "documents"}) {
    const std::string given = talk(concat('"', name, R"(": [{"name": "f"}])"));
    EXPECT_THAT(error_of(spec(given)),
                HasSubstr(concat("a.jsonl:1: the field '", name,
                                 "', which the chat template chat.jinja does not read.")));
    const std::string reads = concat(kPlain, "{% if ", name, " %}{% endif %}");
    EXPECT_EQ(error_of(spec(given, reads.c_str())), "no error");
    EXPECT_EQ(error_of(spec(talk(concat('"', name, "\": []")))), "no error");
    EXPECT_EQ(error_of(spec(talk(concat('"', name, "\": null")))), "no error");
  }
}

TEST(ChatFormats, AreNamedOnceWhereAMemberIsLost) {
  const Json record =
      Json::parse(R"({"messages": [{"role": "user", "content": "x", "thinking": "t"}]})");
  const auto said = [&](const char* name) {
    return lost_member({ChatTemplate("{{ messages }}", name), "{}", LossOn::kText}, record,
                       "messages");
  };
  EXPECT_EQ(said("the chat template of run"),
            "message 1 of 'messages' has 'thinking', which the chat template of run does not read");
  EXPECT_EQ(said("chatml"),
            "message 1 of 'messages' has 'thinking', which the chat template chatml does not read");
}

TEST_F(Talks, OddRecordsAreCountedWithTheirLines) {
  const std::string good = std::string(kTwoAnswers) + "\n";
  const TalkCorpus corpus = load_talks(
      {spec(good + "{\"messages\": [{\"from\": \"human\"}]}\n\n{\"messages\": []}\n[1]\n{\"x\n" +
            R"({"messages": [{"role": "user", "content": "x"}]})" + "\n" + good)},
      words_, {});
  EXPECT_EQ(corpus.size(), 2);
  EXPECT_EQ(corpus.counts.of(Drop::kMalformed), 5);
  EXPECT_THAT(corpus.counts.summary(),
              HasSubstr("a.jsonl:2: message 1 of 'messages' has no 'role' but 'from'"));
  EXPECT_THAT(error_of(spec("{\"messages\": [{\"role\": 1}]}\n")),
              HasSubstr("a.jsonl:1: message 1 of 'messages' must have a text as its role."));
  EXPECT_THAT(error_of(spec(good, "{{ raise_exception('no ' ~ messages[0].role) }}")),
              HasSubstr("a.jsonl:1: chat.jinja:1:19: the template refuses: no user."));
}

// Nothing is learnt of it, so neither losses nor samples have a place for it.
TEST_F(Talks, ATalkOfWhichTheTemplateMarksNoAnswerIsLeftOut) {
  const std::string marks_long_ones =
      "{% for m in messages %}{% if m.role == 'assistant' and m.content | length > 4 %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} "
      "{% endfor %}";
  const std::string unmarked =
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})"
      "\n";
  const TalkCorpus corpus =
      load_talks({spec(unmarked + kTwoAnswers + "\n", marks_long_ones)}, words_, {});
  EXPECT_EQ(corpus.size(), 1);
  EXPECT_THAT(corpus.counts.summary(), HasSubstr("a.jsonl:1: no answer to learn"));
  EXPECT_THAT(error_of(spec(unmarked, marks_long_ones)), HasSubstr("leaves no sentence"));
}

TEST_F(Talks, ATemplateThatHidesAnswersIsOneError) {
  // The last message is written in another way than those before it.
  EXPECT_THAT(error_of(spec(kTwoAnswers,
                            "{% for m in messages %}{{ '<' if loop.last else m.content }} "
                            "{% endfor %}")),
              HasSubstr("does not tell which text is the assistant's"));
}

// Here only a talk of more than two messages is such a one.
TEST_F(Talks, OneTalkThatHidesItsAnswersIsLeftOut) {
  const std::string source =
      "{% for m in messages %}{{ '<' if loop.last and loop.index > 2 else m.content }} {% endfor "
      "%}";
  const std::string short_one =
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})"
      "\n";
  const TalkCorpus corpus = load_talks({spec(short_one + kTwoAnswers + "\n", source)}, words_, {});
  EXPECT_EQ(corpus.size(), 1);
  EXPECT_THAT(corpus.counts.summary(), HasSubstr("a.jsonl:2: [chat template] chat.jinja"));
}

TEST(ChatFormats, TellWhatEndsAnAnswer) {
  EXPECT_EQ(answer_end({}), "<|im_end|>");
  EXPECT_EQ(answer_end({ChatTemplate(kPlain, ""), "{}", LossOn::kText}), ";");
  EXPECT_EQ(answer_end({ChatTemplate(kMarked, ""), "{}", LossOn::kAnswers}), "");
}

TEST(ChatFormats, TellTheEndOfTheTalksThatTheyTake) {
  const auto end_of = [](const std::string& source) {
    return answer_end({ChatTemplate(source, ""), "{}", LossOn::kText});
  };
  const std::string plain = "{% for m in messages %}{{ m.content ~ '<e>' }}{% endfor %}";
  EXPECT_EQ(end_of(plain), "<e>");
  EXPECT_EQ(
      end_of("{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" + plain),
      "<e>");
  EXPECT_EQ(end_of("{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}" + plain),
            "<e>");
  EXPECT_EQ(end_of("{% for m in messages %}{{ m.content[0].text + '<e>' }}{% endfor %}"), "<e>");
  EXPECT_EQ(end_of("{{ raise_exception('no') }}"), "");
}

TEST(ChatFormats, GiveTheOtherFieldsToTheTemplate) {
  const ChatFormat format{ChatTemplate("{{ bos_token ~ messages | length ~ tools[0] ~ thinking ~ "
                                       "add_generation_prompt }}",
                                       ""),
                          R"({"bos_token": "<s>"})", LossOn::kText};
  const Json record = Json::parse(
      R"({"talk": [{"role": "user", "content": "x"}], "tools": ["t"], "chat_template_kwargs": {"thinking": 1}})");
  EXPECT_EQ(chat_prompt(format, record, "talk"), "<s>1t1True");
  EXPECT_EQ(talk_of(format, record, "talk").text, "<s>1t1False");
}

}  // namespace
}  // namespace tapestry
