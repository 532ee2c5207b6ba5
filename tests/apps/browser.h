// A browser without a window, driven through its debugging pipe: pages are opened, clicked and
// looked at as by a user, and whatever lands in their console is kept.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tapestry {

class Browser {
 public:
  using Json = nlohmann::json;

  /// The path of a browser, or "".
  static std::string installed() {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      for (const char* folder : {"/usr/bin/", "/usr/local/bin/", "/snap/bin/"}) {
        const std::string path = std::string(folder) + name;
        if (access(path.c_str(), X_OK) == 0) return path;
      }
    }
    return "";
  }

  /// `profile` is a folder for the browser's own files.
  Browser(const std::string& path, const std::string& profile) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    child_ = fork();
    if (child_ == 0) {
      setpgid(0, 0);
      // It reads commands from 3 and answers on 4. Neither may be lost while they are moved there.
      const int in = fcntl(to[0], F_DUPFD, 10), out = fcntl(from[1], F_DUPFD, 10);
      dup2(in, 3);
      dup2(out, 4);
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDERR_FILENO);
      const std::string folder = "--user-data-dir=" + profile;
      execl(path.c_str(), path.c_str(), "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
            "--hide-scrollbars", "--remote-debugging-pipe", folder.c_str(), "about:blank", nullptr);
      _exit(99);
    }
    close(to[0]);
    close(from[1]);
    in_ = to[1];
    out_ = from[0];
    const Json target = call("Target.createTarget", {{"url", "about:blank"}});
    session_ =
        call("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}})
            .at("sessionId");
    for (const char* domain : {"Page.enable", "Runtime.enable", "Log.enable"}) call(domain);
  }
  ~Browser() {
    kill(-child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(in_);
    close(out_);
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void resize(int width, int height) {
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
  }
  void prefer(const std::string& colours) {
    call("Emulation.setEmulatedMedia",
         {{"features", {{{"name", "prefers-color-scheme"}, {"value", colours}}}}});
  }
  void open_page(const std::string& path) {
    loaded_ = false;
    call("Page.navigate", {{"url", "file://" + path}});
    while (!loaded_) hear();
  }
  /// The value of an expression, which must not throw.
  Json value(const std::string& expression) {
    const Json answer =
        call("Runtime.evaluate",
             {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
    if (answer.contains("exceptionDetails")) throw std::runtime_error(answer.dump());
    const Json& result = answer.at("result");
    return result.contains("value") ? result.at("value") : Json();
  }
  void move(double x, double y) { mouse("mouseMoved", x, y); }
  void click(double x, double y) {
    mouse("mouseMoved", x, y);
    mouse("mousePressed", x, y);
    mouse("mouseReleased", x, y);
  }
  /// In the middle of the element that a selector finds first, scrolled into sight.
  void click(const std::string& selector) {
    const auto [x, y] = place_of(selector, 0.5, 0.5);
    click(x, y);
  }
  void move_to(const std::string& selector, double across, double down) {
    const auto [x, y] = place_of(selector, across, down);
    move(x, y);
  }
  /// A PNG of the window as base64.
  std::string screenshot() {
    return call("Page.captureScreenshot", {{"format", "png"}}).at("data");
  }

  /// Errors and warnings in the console, exceptions, requests that were refused.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  std::pair<double, double> place_of(const std::string& selector, double across, double down) {
    const Json box = value("(() => { const node = document.querySelector(" + Json(selector).dump() +
                           "); node.scrollIntoView({block: 'center'}); const box = "
                           "node.getBoundingClientRect(); return [box.x, box.y, box.width, "
                           "box.height]; })()");
    return {box[0].get<double>() + across * box[2].get<double>(),
            box[1].get<double>() + down * box[3].get<double>()};
  }
  void mouse(const char* type, double x, double y) {
    const bool pressed = std::string(type) != "mouseMoved";
    call("Input.dispatchMouseEvent", {{"type", type},
                                      {"x", x},
                                      {"y", y},
                                      {"button", pressed ? "left" : "none"},
                                      {"clickCount", pressed ? 1 : 0}});
  }

  Json call(const std::string& method, const Json& params = Json::object()) {
    Json message{{"id", ++id_}, {"method", method}, {"params", params}};
    if (!session_.empty()) message["sessionId"] = session_;
    const std::string text = message.dump();
    // The NUL ends a message.
    for (size_t at = 0; at <= text.size();) {
      const ssize_t written = write(in_, text.c_str() + at, text.size() + 1 - at);
      if (written <= 0) throw std::runtime_error("the browser is gone");
      at += static_cast<size_t>(written);
    }
    while (true) {
      const Json answer = hear();
      if (answer.value("id", 0) != id_) continue;
      if (answer.contains("error")) throw std::runtime_error(method + ": " + answer.dump());
      return answer.at("result");
    }
  }
  // The next message, whose events are kept.
  Json hear() {
    size_t end;
    while ((end = bytes_.find('\0')) == std::string::npos) {
      constexpr int kMilliseconds = 60000;
      pollfd output{out_, POLLIN, 0};
      if (poll(&output, 1, kMilliseconds) <= 0) throw std::runtime_error("the browser is silent");
      char part[1 << 16];
      const ssize_t count = read(out_, part, sizeof part);
      if (count <= 0) throw std::runtime_error("the browser has ended");
      bytes_.append(part, static_cast<size_t>(count));
    }
    const Json message = Json::parse(bytes_.substr(0, end));
    bytes_.erase(0, end + 1);
    const std::string method = message.value("method", "");
    if (method == "Page.loadEventFired") loaded_ = true;
    if (method == "Runtime.exceptionThrown") complaints_.push_back(message.dump());
    if (method == "Log.entryAdded") complaints_.push_back(message.dump());
    if (method == "Runtime.consoleAPICalled") complaints_.push_back(message.dump());
    return message;
  }

  pid_t child_ = -1;
  int in_ = -1, out_ = -1, id_ = 0;
  bool loaded_ = false;
  std::string session_, bytes_;
  std::vector<std::string> complaints_;
};

}  // namespace tapestry
