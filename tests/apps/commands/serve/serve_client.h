// `tapestry serve` as its clients see it: one process, sockets.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/tiny_runs.h"

namespace tapestry {

using ServedJson = nlohmann::json;

struct HttpAnswer {
  int status = 0;
  std::string head, body;

  ServedJson json() const { return ServedJson::parse(body); }
};

// A connection to 127.0.0.1.
class ClientConnection {
 public:
  explicit ClientConnection(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    const timeval patience{60, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~ClientConnection() { close(socket_); }
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  void send(const std::string& bytes) const {
    [[maybe_unused]] const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Everything up to the end of the connection.
  HttpAnswer receive() const {
    std::string all;
    char bytes[4096];
    for (ssize_t count; (count = recv(socket_, bytes, sizeof bytes, 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(count));
    }
    HttpAnswer answer;
    const size_t end = all.find("\r\n\r\n");
    answer.head = all.substr(0, end);  // or all of it
    if (end != std::string::npos) answer.body = all.substr(end + 4);
    if (answer.head.size() > 12) answer.status = std::atoi(answer.head.c_str() + 9);
    return answer;
  }
  // The bytes up to such a text.
  std::string receive_until(const std::string& text) const {
    std::string all;
    char byte;
    while (all.find(text) == std::string::npos && recv(socket_, &byte, 1, 0) == 1) all += byte;
    return all;
  }
  bool connected() const { return connected_; }

 private:
  int socket_;
  bool connected_ = false;
};

inline std::string request_text(const std::string& method, const std::string& path,
                                const std::string& body = "", const std::string& headers = "") {
  return concat(method, ' ', path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", headers,
                "Content-Length: ", body.size(), "\r\n\r\n", body);
}

// The program, on a port that it chooses.
class ServerProcess {
 public:
  ServerProcess(const TinyRunFolder& folder, std::vector<std::string> arguments)
      : log_(folder.path("serve-log")) {
    arguments.insert(arguments.begin(), {tapestry_binary(), "serve", "--port", "0"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    child_ = fork();
    if (child_ == 0) {
      const int err = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(out[1], STDOUT_FILENO);
      dup2(err, STDERR_FILENO);
      close(out[0]);
      close(out[1]);
      execv(argv[0], argv.data());
      _exit(99);
    }
    close(out[1]);
    std::string line;
    for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    const size_t colon = line.rfind(':');
    if (colon != std::string::npos) port_ = std::atoi(line.c_str() + colon + 1);
    EXPECT_GT(port_, 0) << read_file(log_);
  }
  ~ServerProcess() {
    if (child_ > 0) end();
  }

  int port() const { return port_; }
  void signal(int number) const { kill(child_, number); }
  // The exit code.
  int end() {
    signal(SIGTERM);
    return TinyRunFolder::wait(std::exchange(child_, 0));
  }
  int wait() { return TinyRunFolder::wait(std::exchange(child_, 0)); }
  std::string log() const { return read_file(log_); }

  HttpAnswer get(const std::string& path, const std::string& headers = "") const {
    return send(request_text("GET", path, "", headers));
  }
  HttpAnswer post(const std::string& path, const ServedJson& body,
                  const std::string& headers = "Content-Type: application/json\r\n") const {
    return send(request_text("POST", path, body.dump(), headers));
  }
  HttpAnswer send(const std::string& bytes) const {
    const ClientConnection connection(port_);
    connection.send(bytes);
    return connection.receive();
  }

 private:
  std::string log_;
  pid_t child_ = 0;
  int port_ = 0;
};

/// One folder of models for all tests, which are trained when they are asked for.
class ServeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("serve");
    trained_.clear();
  }
  static void TearDownTestSuite() { folder_.reset(); }

  /// NAME=DIR of a tiny task; "endless" is one whose answers take long.
  static std::string model(const std::string& task) {
    if (trained_.insert(task).second) {
      const bool endless = task == "endless";
      const std::vector<std::string> long_answers = {"generation.max_new_tokens=4000",
                                                     "generation.min_new_tokens=4000"};
      EXPECT_EQ(folder_->train(endless ? "clm" : task, task,
                               endless ? long_answers : std::vector<std::string>()),
                0)
          << folder_->messages();
    }
    return concat(task, '=', folder_->path(task));
  }
  static std::vector<std::string> sentences() {
    return lines_of(read_file(folder_->path("valid.src")));
  }
  static std::string text_of(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    return text;
  }

  inline static std::unique_ptr<TinyRunFolder> folder_;
  inline static std::set<std::string> trained_;
};

}  // namespace tapestry
