// The answers of `tapestry serve` beside those of the commands.
#include <chrono>
#include <set>
#include <thread>

#include "tests/apps/commands/serve/serve_client.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

TEST_F(ServeTest, TranslatesAsTheCommandDoesForManyClientsAtOnce) {
  const std::string translation = model("translation");
  const std::vector<std::string> lines = sentences();
  const std::vector<std::string> expected =
      lines_of(folder_->output("translate --model translation", text_of(lines)));
  ASSERT_EQ(expected.size(), lines.size());
  ServerProcess server(*folder_, {"--model", translation, "--threads", "2"});
  std::vector<std::thread> clients;
  std::vector<std::string> wrong(16);
  for (size_t c = 0; c < wrong.size(); ++c) {
    clients.emplace_back([&, c] {
      for (size_t i = 0; i < lines.size(); ++i) {
        const size_t line = (i + 3 * c) % lines.size();
        const HttpAnswer answer = server.post("/translate", {{"q", lines[line]}});
        if (answer.status == 200 && answer.json().at("translatedText") == expected[line]) continue;
        wrong[c] = concat(lines[line], ": ", answer.head, answer.body);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, std::vector<std::string>(16)) << server.log();
  // A list, an empty text, a text of two lines, and further translations.
  const ServedJson all = server.post("/translate", {{"q", lines}}).json();
  EXPECT_EQ(all.at("translatedText"), ServedJson(expected));
  const ServedJson both =
      server.post("/translate", {{"q", concat(lines[0], "\n\n", lines[1])}}).json();
  EXPECT_EQ(both.at("translatedText"), concat(expected[0], "\n\n", expected[1]));
  const ServedJson more = server.post("/translate", {{"q", lines[0]}, {"alternatives", 1}}).json();
  const std::vector<std::string> two =
      lines_of(folder_->output("translate --model translation --n-best 2", lines[0] + "\n"));
  EXPECT_EQ(more.at("translatedText"), two.at(0));
  EXPECT_EQ(more.at("alternatives"), ServedJson({two.at(1)}));
  // A form, as LibreTranslate's client sends it.
  const HttpAnswer form =
      server.send(request_text("POST", "/translate", "q=&source=auto&target=en",
                               "Content-Type: application/x-www-form-urlencoded\r\n"));
  EXPECT_EQ(form.json().at("translatedText"), "") << form.body;
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_THAT(server.get("/metrics").body,
              HasSubstr("tapestry_requests_total{path=\"/translate\",status=\"200\"} 324"));
  EXPECT_EQ(server.end(), 0) << server.log();
  EXPECT_THAT(server.log(), testing::Not(HasSubstr(lines[0])));  // no texts
}

TEST_F(ServeTest, RefusesWhatItCannotAnswer) {
  folder_->write("keys", "secret\nother\n");
  ServerProcess server(*folder_, {"--model", model("translation"), "--api-key-file",
                                  folder_->path("keys"), "--max-body", "1000", "--max-queue", "4"});
  const std::string json = "Content-Type: application/json\r\n";
  const std::string key = json + "Authorization: Bearer secret\r\n";
  const auto error = [](const HttpAnswer& answer) {
    return concat(answer.status, ' ', answer.json().at("error").dump());
  };
  EXPECT_THAT(error(server.post("/translate", {{"q", "a"}})), HasSubstr("401"));
  EXPECT_EQ(
      server.post("/translate", {{"q", "a"}}, json + "Authorization: Bearer secreu\r\n").status,
      401);
  EXPECT_EQ(server.post("/translate", {{"q", "a"}}, json + "Authorization: Bearer s\r\n").status,
            401);
  EXPECT_EQ(server.post("/translate", {{"q", "a"}, {"api_key", "other"}}).status, 200);
  EXPECT_EQ(server.get("/health").status, 200);  // needs no key
  EXPECT_EQ(server.get("/metrics").status, 401);
  EXPECT_THAT(error(server.get("/nowhere")), HasSubstr("404 \"there is no /nowhere here"));
  const HttpAnswer method = server.get("/translate", key);
  EXPECT_THAT(error(method), HasSubstr("405 \"/translate takes POST, got GET."));
  EXPECT_THAT(method.head, HasSubstr("Allow: POST"));
  EXPECT_THAT(error(server.post("/translate", ServedJson::object(), key)),
              HasSubstr("400 \"the field 'q' is missing."));
  EXPECT_THAT(error(server.post("/translate", {{"q", 3}}, key)),
              HasSubstr("the field 'q' must be a text or a list of texts, got number."));
  EXPECT_THAT(error(server.post("/translate", {{"q", "a"}, {"alternative", 1}}, key)),
              HasSubstr("unknown field 'alternative' of /translate; did you mean 'alternatives'?"));
  EXPECT_EQ(server.post("/translate", {{"q", "a"}, {"user", "b"}, {"other", nullptr}}, key).status,
            200);
  EXPECT_THAT(error(server.post("/translate", {{"q", "a"}, {"seed", -1}}, key)),
              HasSubstr("the field 'seed' must be at least 0, got -1."));
  EXPECT_THAT(error(server.post("/translate", {{"q", "a"}, {"model", "b"}}, key)),
              HasSubstr("404 \"there is no model 'b', there is translation."));
  EXPECT_THAT(error(server.send(request_text("POST", "/translate", "{\"q\": ", key))),
              HasSubstr("400 \"the body must be a JSON object: "));
  EXPECT_EQ(server.send(request_text("POST", "/translate", "{\"q\": \"\xFF\"}", key)).status, 400);
  EXPECT_THAT(error(server.post("/translate", {{"q", std::string(2000, 'a')}}, key)),
              HasSubstr("413 \"the body is larger than 1000 bytes (--max-body)."));
  const std::string chunks = concat("7d0\r\n", std::string(2000, 'a'), "\r\n0\r\n\r\n");
  EXPECT_EQ(server
                .send(concat("POST /translate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", key,
                             "Transfer-Encoding: chunked\r\n\r\n", chunks))
                .status,
            413);
  const std::vector<std::string> five(5, "a");
  EXPECT_THAT(error(server.post("/translate", {{"q", five}}, key)),
              HasSubstr("429 \"the queue is full: at most 4 texts"));
  // Behind a body that nobody wants comes the next request.
  const ClientConnection client(server.port());
  client.send("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_THAT(client.receive_until("openapi.json.\"}"), HasSubstr("404"));
  client.send(request_text("GET", "/health"));
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(server.send("nonsense\r\n\r\n").status, 400);
  EXPECT_THAT(error(server.post("/v1/completions", {{"prompt", "a"}}, key)),
              HasSubstr("no model here can do this"));
  EXPECT_EQ(server.post("/translate", {{"q", "a"}}, key).status, 200);  // as before
  EXPECT_EQ(server.end(), 0);
}

TEST_F(ServeTest, StartsOnlyWithWhatItCanServe) {
  const std::string clm = model("clm");
  model("mlm");
  const auto error = [&](const std::string& arguments) {
    const auto outcome = folder_->run("serve --port 0 " + arguments);
    return concat(outcome.code, ' ', outcome.err);
  };
  EXPECT_THAT(error("--model a"),
              HasSubstr("2 error: [serve] expected --model NAME=DIR, got 'a'."));
  EXPECT_THAT(error("--model a=clm --model a=mlm"),
              HasSubstr("2 error: --model a=mlm: two models have the name 'a': clm and mlm."));
  EXPECT_THAT(error("--model 'a\"b=clm'"), HasSubstr("a model's name has letters, digits and"));
  EXPECT_THAT(error("--model a=nothing"), HasSubstr("nothing"));
  EXPECT_THAT(error("--model a=clm --api-key-file chat.jinja2"), HasSubstr("chat.jinja2"));
  ServerProcess server(*folder_, {"--model", clm});
  const auto taken = folder_->run(concat("serve --model a=clm --port ", server.port()));
  EXPECT_EQ(taken.code, 1);
  EXPECT_THAT(taken.err, HasSubstr(concat("[serve] cannot listen on 127.0.0.1:", server.port())));
}

TEST_F(ServeTest, ContinuesAsTheCommandDoesWithTheSameSeedForManyClients) {
  const std::string prompt = sentences()[0].substr(0, 8);
  ServerProcess server(*folder_, {"--model", model("clm"), "--model", model("chat")});
  const auto ask = [&](ServedJson body) {
    body["model"] = "clm";
    body["prompt"] = prompt;
    const HttpAnswer answer = server.post("/v1/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices").at(0).at("text").get<std::string>();
  };
  const auto expected = [&](const std::string& options) {
    const std::string line = folder_->output(
        concat("generate --model clm --max-new-tokens 6 ", options, " --prompt '", prompt, "'"));
    return line.substr(prompt.size(), line.size() - prompt.size() - 1);
  };
  EXPECT_EQ(ask({{"temperature", 0}, {"max_tokens", 6}}), expected("--temperature 0"));
  EXPECT_EQ(ask({{"temperature", 0}, {"max_tokens", 6}, {"max_repeat", 1}}),
            expected("--temperature 0 --max-repeat 1"));
  std::vector<std::string> of_seed;
  for (int seed = 1; seed <= 6; ++seed) {
    of_seed.push_back(expected(concat("--do-sample --temperature 1.5 --seed ", seed)));
  }
  EXPECT_GT(std::set<std::string>(of_seed.begin(), of_seed.end()).size(), 1u);
  std::vector<std::thread> clients;
  std::vector<std::string> got(24);
  for (size_t c = 0; c < got.size(); ++c) {
    clients.emplace_back([&, c] {
      got[c] = ask({{"temperature", 1.5}, {"max_tokens", 6}, {"seed", 1 + c % 6}});
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t c = 0; c < got.size(); ++c) EXPECT_EQ(got[c], of_seed[c % 6]) << c;
  std::set<std::string> anew;
  for (int i = 0; i < 8; ++i) anew.insert(ask({{"temperature", 1.5}, {"max_tokens", 6}}));
  EXPECT_GT(anew.size(), 1u);  // without a seed

  // The parts of a stream are the whole text.
  const auto longest = std::ranges::max_element(of_seed, {}, &std::string::size);
  ASSERT_GT(longest->size(), 3u);
  ServedJson request = {{"model", "clm"},
                        {"prompt", prompt},
                        {"temperature", 1.5},
                        {"seed", 1 + (longest - of_seed.begin())},
                        {"max_tokens", 6}};
  const ServedJson whole = server.post("/v1/completions", request).json();
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  const std::string stream = server.post("/v1/completions", request).body;
  std::string streamed;
  ServedJson usage;
  for (const std::string& line : lines_of(stream)) {
    if (!line.starts_with("data: {")) continue;
    const ServedJson part = ServedJson::parse(line.substr(6));
    if (part.contains("usage")) usage = part.at("usage");
    for (const ServedJson& choice : part.at("choices")) {
      streamed += choice.at("text").get<std::string>();
    }
  }
  EXPECT_EQ(streamed, *longest);
  EXPECT_EQ(usage, whole.at("usage"));
  EXPECT_GT(usage.at("completion_tokens"), 0);
  EXPECT_THAT(stream, HasSubstr("data: [DONE]"));

  // What lm-eval reads.
  const ServedJson scored = server
                                .post("/v1/completions", {{"model", "clm"},
                                                          {"prompt", sentences()[0]},
                                                          {"echo", true},
                                                          {"logprobs", 1},
                                                          {"max_tokens", 1},
                                                          {"temperature", 0}})
                                .json();
  const ServedJson& logprobs = scored.at("choices").at(0).at("logprobs");
  ASSERT_EQ(logprobs.at("tokens").size(), logprobs.at("token_logprobs").size()) << scored;
  double sum = 0;
  for (size_t i = 0; i + 1 < logprobs.at("tokens").size(); ++i) {
    if (logprobs["token_logprobs"][i].is_null()) continue;
    sum += logprobs["token_logprobs"][i].get<double>();
  }
  const ServedJson line = ServedJson::parse(
      folder_->output("score --model clm --tokens --target -", sentences()[0] + "\n"));
  double without_end = line.at("log_probability").get<double>();
  without_end -= line.at("token_log_probabilities").back().get<double>();
  EXPECT_NEAR(sum, without_end, 1e-4);

  const ServedJson talk =
      server
          .post("/v1/chat/completions",
                {{"model", "chat"},
                 {"temperature", 0},
                 {"max_tokens", 5},
                 {"messages", {{{"role", "user"}, {"content", sentences()[1]}}}}})
          .json();
  const ServedJson record = {{"messages", {{{"role", "user"}, {"content", sentences()[1]}}}}};
  const ServedJson answered = ServedJson::parse(folder_->output(
      "generate --model chat --jsonl --max-new-tokens 5 --temperature 0", record.dump() + "\n"));
  EXPECT_EQ(talk.at("choices").at(0).at("message"), answered.at("messages").back());
  EXPECT_EQ(
      server.post("/v1/chat/completions", {{"model", "clm"}, {"messages", {{{"role", "user"}}}}})
          .status,
      400);
  EXPECT_EQ(
      server.post("/v1/completions", {{"model", "clm"}, {"prompt", "a"}, {"top_p", 7}}).status,
      400);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, AnswersOfOnePassAreTheCommands) {
  ServerProcess server(*folder_, {"--model", model("mlm"), "--model", model("classification"),
                                  "--model", model("questions"), "--model", model("vectors"),
                                  "--model", model("several"), "--model", model("translation")});
  const std::string text = sentences()[0];
  const ServedJson classes = server.post("/classify", {{"text", text}}).json();
  const ServedJson expected = ServedJson::parse(
      folder_->output("classify --model classification --top-k 100 --detail jsonl", text + "\n"));
  EXPECT_EQ(classes.at("classes").at(0), expected.at("classes"));
  const ServedJson several =
      server.post("/classify", {{"text", text}, {"model", "several"}}).json();
  const ServedJson any = ServedJson::parse(
      folder_->output("classify --model several --threshold 0 --detail jsonl", text + "\n"));
  EXPECT_EQ(several.at("classes").at(0), any.at("classes"));
  const ServedJson vector = server.post("/v1/embeddings", {{"input", text}}).json();
  const ServedJson row = ServedJson::parse(folder_->output("embed --model vectors", text + "\n"));
  ASSERT_EQ(vector.at("data").at(0).at("embedding").size(), row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_FLOAT_EQ(vector["data"][0]["embedding"][i].get<float>(), row[i].get<float>());
  }
  const std::string masked = "<mask>" + text.substr(text.find(' '));
  const ServedJson words = server.post("/fill-mask", {{"text", masked}, {"top_k", 1}}).json();
  const std::string guess = folder_->output("fill-mask --model mlm --top-k 1", masked + "\n");
  EXPECT_THAT(guess, testing::StartsWith(words["masks"][0][0][0]["text"].get<std::string>()));
  const ServedJson answers =
      server.post("/answer", {{"context", text}, {"question", text.substr(0, 3)}}).json();
  const ServedJson spans = ServedJson::parse(folder_->output(
      "answer --model questions --detail jsonl", concat(text, '\t', text.substr(0, 3), '\n')));
  EXPECT_EQ(answers.at("answers"), spans.at("answers"));
  const ServedJson score = server.post("/score", {{"source", text}, {"text", text}}).json();
  folder_->write("one", text + "\n");
  const ServedJson pair = ServedJson::parse(
      folder_->output("score --model translation --source one --target one --tokens"));
  EXPECT_NEAR(score["scores"][0]["log_probability"].get<double>(),
              pair["log_probability"].get<double>(), 1e-5);
  // The description has every path that answers, with the fields that are checked.
  const ServedJson description = server.get("/openapi.json").json();
  for (const auto& [path, methods] : description.at("paths").items()) {
    for (const auto& [method, operation] : methods.items()) {
      const HttpAnswer answer =
          method == "get" ? server.get(path) : server.post(path, ServedJson::object());
      const bool asks = method == "post" || operation.contains("parameters");
      EXPECT_EQ(answer.status, asks ? 400 : 200) << path << answer.body;
      if (method == "get") continue;
      const ServedJson& schema = operation["requestBody"]["content"]["application/json"]["schema"];
      EXPECT_FALSE(schema.at("required").empty()) << path;
    }
  }
  EXPECT_THAT(server.get("/").body, HasSubstr("connect-src 'self'"));
  EXPECT_EQ(server.get("/v1/models").json().at("data").size(), 6u);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, AnswersThatRunAreFinishedAfterSigterm) {
  ServedJson request = {{"prompt", sentences()[0].substr(0, 8)},
                        {"max_tokens", 300},
                        {"stream", true},
                        {"temperature", 1}};
  // The first part of a stream says that the answer runs.
  const auto ask_and_end = [&](ServerProcess& server) {
    const ClientConnection client(server.port());
    client.send(request_text("POST", "/v1/completions", request.dump()));
    client.receive_until("data: ");
    server.signal(SIGTERM);
    return client.receive().head;
  };
  {
    ServerProcess server(*folder_, {"--model", model("endless"), "--grace", "60"});
    EXPECT_THAT(ask_and_end(server), HasSubstr("[DONE]"));
    EXPECT_EQ(server.wait(), 0);
  }
  ServerProcess server(*folder_, {"--model", model("endless"), "--grace", "0"});
  request["max_tokens"] = 4000;
  request["n"] = 100;
  const std::string cut = ask_and_end(server);
  EXPECT_THAT(cut.substr(cut.size() > 500 ? cut.size() - 500 : 0), HasSubstr("the server ends"));
  EXPECT_EQ(server.wait(), 0);
}

TEST_F(ServeTest, AnAnswerThatTakesTooLongIsRefused) {
  ServerProcess server(*folder_, {"--model", model("endless"), "--timeout", "0.05"});
  const HttpAnswer answer = server.post(
      "/v1/completions", {{"prompt", "a"}, {"max_tokens", 4000}, {"n", 100}, {"temperature", 1}});
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the answer takes longer than --timeout."));
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: "));
  EXPECT_EQ(server.end(), 0);
}

}  // namespace
}  // namespace tapestry
