// Log-probabilities as OpenAI's clients ask for them, whole and streamed.
#include "tests/apps/commands/serve/serve_client.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

// The choices of a stream's events.
std::vector<ServedJson> streamed_choices(const std::string& body) {
  std::vector<ServedJson> choices;
  for (const std::string& line : lines_of(body)) {
    if (!line.starts_with("data: {")) continue;
    const ServedJson event = ServedJson::parse(line.substr(6));
    for (const ServedJson& choice : event.at("choices")) choices.push_back(choice);
  }
  return choices;
}

ServedJson& append(ServedJson& all, const ServedJson& more) {
  for (const ServedJson& one : more) all.push_back(one);
  return all;
}

TEST_F(ServeTest, LogProbabilitiesHaveTheBestTokensOfEachPlace) {
  ServerProcess server(*folder_, {"--model", model("clm")});
  ServedJson request = {{"prompt", sentences()[0].substr(0, 8)},
                        {"temperature", 1.5},
                        {"seed", 3},
                        {"max_tokens", 6},
                        {"logprobs", 0}};
  const auto listed = [&] {
    const HttpAnswer answer = server.post("/v1/completions", request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices").at(0).at("logprobs");
  };
  const ServedJson own = listed();
  request["logprobs"] = 3;
  const ServedJson top = listed();
  ASSERT_EQ(top.at("tokens"), own.at("tokens"));
  ASSERT_GT(top.at("tokens").size(), 2u);
  for (size_t i = 0; i < top.at("tokens").size(); ++i) {
    const double value = top["token_logprobs"][i];
    EXPECT_NEAR(value, own["token_logprobs"][i].get<double>(), 1e-4) << i << own << top;
    const ServedJson& best = top["top_logprobs"][i];
    EXPECT_EQ(best.at(top["tokens"][i].get<std::string>()), value);
    EXPECT_GE(best.size(), 3u);
    EXPECT_LE(best.size(), 4u);
    double mass = 0;
    for (const auto& [piece, log_probability] : best.items()) {
      mass += std::exp(log_probability.get<double>());
    }
    EXPECT_LE(mass, 1 + 1e-6);
  }
  // The best one is what a greedy search would write.
  ServedJson greedy = request;
  greedy["temperature"] = 0;
  greedy["max_tokens"] = 1;
  for (const int count : {1, 2}) {
    greedy["logprobs"] = count;
    const ServedJson found = server.post("/v1/completions", greedy).json();
    const ServedJson& first = found["choices"][0]["logprobs"];
    double best = -1e9;
    for (const auto& [piece, value] : first["top_logprobs"][0].items()) {
      best = std::max(best, value.get<double>());
    }
    EXPECT_EQ(first["token_logprobs"][0], best) << found;
  }
  // The parts of a stream are the whole list.
  request["stream"] = true;
  ServedJson tokens = ServedJson::array(), each = tokens, best = tokens;
  for (const ServedJson& choice : streamed_choices(server.post("/v1/completions", request).body)) {
    append(tokens, choice.at("logprobs").at("tokens"));
    append(each, choice.at("logprobs").at("token_logprobs"));
    append(best, choice.at("logprobs").at("top_logprobs"));
  }
  EXPECT_EQ(tokens, top.at("tokens"));
  EXPECT_EQ(each, top.at("token_logprobs"));
  EXPECT_EQ(best, top.at("top_logprobs"));
  request["logprobs"] = 6;
  EXPECT_THAT(server.post("/v1/completions", request).body, HasSubstr("must be in [0, 5], got 6"));
  // Of a prompt, too.
  const ServedJson echoed =
      server
          .post("/v1/completions",
                {{"prompt", sentences()[0]}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 2}})
          .json()["choices"][0]["logprobs"];
  EXPECT_GE(echoed["top_logprobs"].back().size(), 2u) << echoed;
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, LogProbabilitiesOfATalk) {
  ServerProcess server(*folder_, {"--model", model("chat")});
  ServedJson request = {{"messages", {{{"role", "user"}, {"content", sentences()[1]}}}},
                        {"temperature", 1},
                        {"seed", 2},
                        {"max_tokens", 5},
                        {"logprobs", true},
                        {"top_logprobs", 2}};
  const HttpAnswer answer = server.post("/v1/chat/completions", request);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const ServedJson content = answer.json()["choices"][0]["logprobs"]["content"];
  ASSERT_FALSE(content.empty());
  for (const ServedJson& place : content) {
    EXPECT_EQ(place.at("top_logprobs").size(), 2u);
    EXPECT_GE(place["top_logprobs"][0]["logprob"], place["top_logprobs"][1]["logprob"]);
    EXPECT_LE(place["logprob"], place["top_logprobs"][0]["logprob"]);
  }
  request["stream"] = true;
  ServedJson all = ServedJson::array();
  for (const ServedJson& choice :
       streamed_choices(server.post("/v1/chat/completions", request).body)) {
    append(all, choice.at("logprobs").at("content"));
  }
  EXPECT_EQ(all, content);
  request.erase("logprobs");
  EXPECT_THAT(server.post("/v1/chat/completions", request).body,
              HasSubstr("'top_logprobs' needs 'logprobs': true."));
  EXPECT_EQ(server.end(), 0) << server.log();
}

}  // namespace
}  // namespace tapestry
