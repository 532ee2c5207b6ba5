// Clients that are slow, silent, gone or wrong, beside one that is none of it.
#include <chrono>
#include <thread>

#include "tests/apps/commands/serve/serve_client.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

const char* const kJsonHeader = "Content-Type: application/json\r\n";

double count_of(const ServerProcess& server, const std::string& name) {
  for (const std::string& line : lines_of(server.get("/metrics").body)) {
    if (line.starts_with(name + " ")) return std::atof(line.c_str() + name.size());
  }
  return -1;
}

TEST_F(ServeTest, SlowAndSilentClientsTakeNothingFromOthers) {
  ServerProcess server(*folder_, {"--model", model("translation"), "--max-connections", "50",
                                  "--read-timeout", "30"});
  const ServedJson question = {{"q", sentences()[0]}};
  const std::string expected = server.post("/translate", question).body;
  std::vector<std::unique_ptr<ClientConnection>> slow;
  const std::string request = request_text("POST", "/translate", question.dump(), kJsonHeader);
  for (int i = 0; i < 600; ++i) {
    slow.push_back(std::make_unique<ClientConnection>(server.port()));
    ASSERT_TRUE(slow.back()->connected()) << i;
    if (i % 2 == 1) slow.back()->send(request.substr(0, request.size() / 2));
    if (i % 100 != 99) continue;
    EXPECT_EQ(server.post("/translate", question).body, expected);
  }
  EXPECT_GE(count_of(server, "tapestry_connections_closed_for_others_total"), 500);
  EXPECT_LE(count_of(server, "tapestry_connections"), 50);
  // One that came last may still send the rest.
  slow.back()->send(request.substr(request.size() / 2));
  EXPECT_EQ(slow.back()->receive().body, expected);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, AReaderWhoTakesNoAnswerHoldsNoThread) {
  ServerProcess server(*folder_, {"--model", model("clm"), "--max-queue", "1"});  // 17 threads
  std::vector<std::unique_ptr<ClientConnection>> silent;
  std::string many;
  for (int i = 0; i < 200; ++i) many += "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<ClientConnection>(server.port()));
    silent.back()->send(many);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(server.get("/v1/models").status, 200);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, ARequestThatDoesNotArriveInTimeIsToldSo) {
  ServerProcess server(*folder_, {"--model", model("clm"), "--read-timeout", "0.2"});
  const ClientConnection slow(server.port()), idle(server.port());
  slow.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\n{");
  const HttpAnswer answer = slow.receive();
  EXPECT_EQ(answer.status, 408);
  EXPECT_THAT(answer.json().at("error").at("message").get<std::string>(),
              HasSubstr("did not arrive within 0.2 seconds (--read-timeout)."));
  EXPECT_EQ(idle.receive().status, 0);  // closed without a word
  EXPECT_GE(count_of(server, "tapestry_connections_timed_out_total"), 1);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, RequestsOfAConnectionAreAnsweredInTheirOrder) {
  ServerProcess server(*folder_, {"--model", model("translation")});
  std::string requests;
  for (int i = 0; i < 3; ++i) requests += "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
  const ClientConnection client(server.port());
  client.send(requests + request_text("GET", "/nowhere"));
  const std::string all = client.receive().body;
  size_t at = 0;
  for (int i = 0; i < 2; ++i) at = all.find("200 OK", at + 1);
  EXPECT_LT(at, all.find("404")) << all;
  // A client that waits for leave to send its body gets it, and then one answer.
  const ClientConnection waits(server.port());
  waits.send(concat("POST /translate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", kJsonHeader,
                    "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"));
  EXPECT_EQ(waits.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  waits.send("{\"q\":\"\"} ");
  const HttpAnswer answer = waits.receive();
  EXPECT_EQ(answer.status, 200) << answer.head;
  EXPECT_EQ(answer.body, "{\"translatedText\":\"\"}");
  // What has no clear end is refused, and the connection ends with it.
  EXPECT_EQ(server
                .send("POST /translate HTTP/1.1\r\nContent-Length: 3\r\n"
                      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
                .status,
            400);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTest, AnswersThatNobodyWaitsForAreNotComputed) {
  ServerProcess server(*folder_, {"--model", model("endless"), "--timeout", "600"});
  {
    const ClientConnection client(server.port());
    client.send(request_text(
        "POST", "/v1/completions",
        ServedJson{{"prompt", "a"}, {"max_tokens", 4000}, {"n", 100}, {"temperature", 1}}.dump(),
        kJsonHeader));
    while (count_of(server, "tapestry_texts") < 100) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  for (int i = 0; i < 500 && count_of(server, "tapestry_texts") > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(count_of(server, "tapestry_texts"), 0);
  EXPECT_EQ(server.end(), 0) << server.log();
}

}  // namespace
}  // namespace tapestry
