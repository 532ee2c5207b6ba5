// Models that come and go while a server runs, and pages of other origins.
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/apps/commands/serve/serve_client.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

bool logs(const ServerProcess& server, const std::string& text, size_t times = 1) {
  for (int i = 0; i < 1000; ++i) {
    const std::string log = server.log();
    size_t found = 0;
    for (size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++found;
    if (found >= times) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

ServedJson entry_of(const ServerProcess& server, const std::string& name) {
  const ServedJson models = server.get("/v1/models").json();
  for (const ServedJson& entry : models.at("data")) {
    if (entry.at("id") == name) return entry;
  }
  return {};
}

TEST_F(ServeTest, SighupReadsTheModelsAgain) {
  model("translation");
  ASSERT_EQ(folder_->train("translation", "second", {"seed=7"}), 0) << folder_->messages();
  const std::string text = sentences()[0] + '\n';
  const std::string first = folder_->output("translate --model translation", text);
  const std::string second = folder_->output("translate --model second", text);
  ASSERT_NE(first, second);
  fs::copy(folder_->path("translation"), folder_->path("served"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  ServerProcess server(
      *folder_, {"--model", "served=" + folder_->path("served"), "--model", model("endless")});
  const auto translated = [&] {
    return server.post("/translate", {{"q", sentences()[0]}}).json().at("translatedText").dump();
  };
  const auto line_of = [](std::string line) {
    line.pop_back();
    return ServedJson(line).dump();
  };
  EXPECT_EQ(translated(), line_of(first));
  // An answer that runs ends as it would have.
  const ClientConnection client(server.port());
  client.send(request_text("POST", "/v1/completions",
                           ServedJson{{"prompt", sentences()[0].substr(0, 8)},
                                      {"max_tokens", 400},
                                      {"stream", true},
                                      {"temperature", 1}}
                               .dump()));
  client.receive_until("data: ");
  fs::remove_all(folder_->path("served"));
  fs::copy(folder_->path("second"), folder_->path("served"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  server.signal(SIGHUP);
  ASSERT_TRUE(logs(server, "SIGHUP: endless is read again")) << server.log();
  EXPECT_EQ(translated(), line_of(second));
  EXPECT_THAT(client.receive().head, HasSubstr("[DONE]"));
  // A model that cannot be read leaves the old one in its place.
  fs::remove_all(folder_->path("served"));
  fs::create_directories(folder_->path("served"));
  server.signal(SIGHUP);
  ASSERT_TRUE(logs(server, "SIGHUP: served stays as it was: ")) << server.log();
  EXPECT_EQ(translated(), line_of(second));
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, AFileNamesModelsWithWeightsOfTheirOwn) {
  const std::string path = folder_->path("translation");
  model("translation");
  write_file(folder_->path("serve.yaml"),
             concat("serve:\n  max_queue: 3\n  models:\n    - {name: full, path: \"", path,
                    "\"}\n    - {name: small, path: \"", path, "\", weights: int8}\n"));
  ServerProcess server(*folder_, {folder_->path("serve.yaml"), "serve.max_queue=2"});
  EXPECT_GT(entry_of(server, "full").at("bytes").get<int64_t>(),
            3 * entry_of(server, "small").at("bytes").get<int64_t>());
  const std::string text = sentences()[0];
  for (const auto& [name, option] : {std::pair("full", ""), {"small", " --weights int8"}}) {
    const std::string expected =
        folder_->output(concat("translate --model translation", option), text + '\n');
    const HttpAnswer answer = server.post("/translate", {{"q", text}, {"model", name}});
    EXPECT_EQ(answer.json().at("translatedText").get<std::string>() + '\n', expected) << name;
  }
  const std::vector<std::string> three(3, text);
  EXPECT_THAT(server.post("/translate", {{"q", three}}).body, HasSubstr("at most 2 texts"));
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, ModelsAreLoadedOnDemandUnderMemory) {
  const std::vector<std::string> models = {"--model", model("translation"), "--model", model("clm"),
                                           "--model", model("chat")};
  const std::string text = sentences()[0];
  int64_t most = 0, sum = 0;
  {
    ServerProcess server(*folder_, models);
    const ServedJson entries = server.get("/v1/models").json();
    for (const ServedJson& entry : entries.at("data")) {
      EXPECT_TRUE(entry.at("loaded"));
      most = std::max(most, entry.at("bytes").get<int64_t>());
      sum += entry.at("bytes").get<int64_t>();
    }
    EXPECT_EQ(server.end(), 0) << server.log();
  }
  std::vector<std::string> arguments = models;
  arguments.insert(arguments.end(), {"--memory", std::to_string(most)});
  ServerProcess server(*folder_, arguments);
  EXPECT_FALSE(entry_of(server, "clm").at("loaded"));
  EXPECT_THAT(entry_of(server, "chat").at("abilities").dump(), HasSubstr("chat"));
  // Each needs the room of the others, which many clients ask for at the same time.
  std::vector<std::thread> clients;
  std::vector<std::string> wrong(6);
  const std::string expected = folder_->output("translate --model translation", text + '\n');
  for (size_t c = 0; c < wrong.size(); ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 10; ++i) {
        const bool translates = (c + static_cast<size_t>(i)) % 2 == 0;
        const HttpAnswer answer =
            translates ? server.post("/translate", {{"q", text}})
                       : server.post("/v1/completions",
                                     {{"model", "clm"}, {"prompt", text}, {"max_tokens", 2}});
        if (answer.status != 200) wrong[c] = answer.body;
        if (!translates || answer.status != 200) continue;
        if (answer.json().at("translatedText").get<std::string>() + '\n' != expected) {
          wrong[c] = answer.body;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, std::vector<std::string>(6)) << server.log();
  const bool first = entry_of(server, "translation").at("loaded");
  EXPECT_NE(first, entry_of(server, "clm").at("loaded").get<bool>());
  EXPECT_THAT(server.get("/metrics").body,
              HasSubstr("tapestry_model_loads_total{model=\"chat\"} 0\n"));
  EXPECT_EQ(server.end(), 0) << server.log();
  const auto outcome =
      folder_->run(concat("serve --port 0 --model ", model("translation"), " --memory ", most / 3));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("bytes, --memory allows "));
  EXPECT_THAT(
      folder_->run("serve --port 0 --model a=clm --memory much").err,
      HasSubstr("--memory much: 'serve.memory' must be a size such as 4GB or 1.5 GiB, in B, "));
  EXPECT_GT(sum, most);
}

TEST_F(ServeTest, PagesOfOtherOriginsMayAskOnlyIfTheyAreAllowed) {
  const std::string here = "Origin: https://here.example\r\n";
  const std::string preflight = "Access-Control-Request-Method: POST\r\n";
  {
    ServerProcess server(*folder_, {"--model", model("clm")});
    EXPECT_THAT(server.get("/health", here).head, testing::Not(HasSubstr("Access-Control")));
    EXPECT_EQ(server.send(request_text("OPTIONS", "/translate", "", here + preflight)).status, 405);
    EXPECT_EQ(server.end(), 0) << server.log();
  }
  folder_->write("keys", "secret\n");
  ServerProcess server(*folder_, {"--model", model("clm"), "--cors", "https://here.example",
                                  "--api-key-file", folder_->path("keys")});
  // A browser asks without the key whether it may send it.
  const HttpAnswer may =
      server.send(request_text("OPTIONS", "/v1/completions", "", here + preflight));
  EXPECT_EQ(may.status, 204) << may.head;
  EXPECT_THAT(may.head, HasSubstr("Access-Control-Allow-Origin: https://here.example"));
  EXPECT_THAT(may.head, HasSubstr("Access-Control-Allow-Headers: Authorization, Content-Type"));
  const HttpAnswer refused = server.post("/v1/completions", {{"prompt", "a"}}, here);
  EXPECT_EQ(refused.status, 401);  // the page may read why
  EXPECT_THAT(refused.head, HasSubstr("Access-Control-Allow-Origin: https://here.example"));
  EXPECT_THAT(server.get("/health", "Origin: https://there.example\r\n").head,
              testing::Not(HasSubstr("Access-Control")));
  EXPECT_EQ(server.end(), 0) << server.log();
}

}  // namespace
}  // namespace tapestry
