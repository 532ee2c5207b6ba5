#include "apps/commands/serve/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "apps/commands/serve/door/door.h"
#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/request_body.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

const Endpoint* find_endpoint(const std::string& method, const std::string& path,
                              std::string& allowed) {
  for (const Endpoint* endpoint : endpoints()) {
    if (path != endpoint->path) continue;
    if (method == endpoint->method || (method == "HEAD" && endpoint->method[0] == 'G')) {
      return endpoint;
    }
    allowed = endpoint->method;
  }
  return nullptr;
}

std::string key_of(const httplib::Request& request, const Json& body) {
  const std::string header = request.get_header_value("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (header.starts_with(kBearer)) return header.substr(kBearer.size());
  const auto field = body.find("api_key");  // as LibreTranslate's clients send it
  return field != body.end() && field->is_string() ? field->get<std::string>() : "";
}

}  // namespace

std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.empty()) fail(ErrorKind::kData, "[serve] ", path, " has no key.");
  return keys;
}

bool is_key(const std::vector<std::string>& keys, const std::string& given) {
  bool found = false;
  for (const std::string& key : keys) {
    // As many steps as the given text has bytes, whatever the key is.
    unsigned differences = key.size() == given.size() ? 0 : 1;
    for (size_t i = 0; i < given.size(); ++i) {
      const char of_key = key[i % key.size()];
      differences |= static_cast<unsigned char>(of_key ^ given[i]);
    }
    found |= differences == 0;
  }
  return found;
}

// The library without its sockets and threads.
class Library : public httplib::Server {
 public:
  int listening() const { return svr_sock_; }
  /// Returns true if the connection may have another request.
  bool answer(Connection& connection, bool last) {
    bool closed = last;
    return process_request(connection, last, closed, nullptr) && !closed;
  }
};

// Whose request this thread answers: the library hands its handlers no connection.
thread_local Connection* answered_here = nullptr;

struct Server::Members {
  explicit Members(Service& service) : service(service) {}

  Service& service;
  std::vector<std::string> keys;
  Library http;
  std::unique_ptr<Door> door;
  std::mutex mutex;
  std::list<std::weak_ptr<std::atomic<bool>>> running;  // what the end of grace cancels

  void prepare();
  Door::Options door_options();
  std::string refusal(int status, const std::string& problem, std::string_view head) const;
  void answer(const httplib::Request& request, httplib::Response& response,
              const httplib::ContentReader* content);
  Json body_of(const httplib::Request& request, const httplib::ContentReader& content,
               const CallEnd& end, bool& is_form) const;
  Reply reply_to(const httplib::Request& request, const httplib::ContentReader* content,
                 const CallEnd& end);
  void add_cors(const httplib::Request& request, httplib::Response& response, Reply& reply) const;
  void send(Reply reply, httplib::Response& response, const CallEnd& end) const;
  void cancel_running();
};

void Server::Members::prepare() {
  const ServeOptions& options = service.options();
  if (!options.api_key_file.empty()) keys = read_keys(options.api_key_file);
  http.set_socket_options([](int fd) {
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  http.set_payload_max_length(static_cast<size_t>(options.max_body));
  const auto plain = [this](const httplib::Request& request, httplib::Response& response) {
    answer(request, response, nullptr);
  };
  const auto reading = [this](const httplib::Request& request, httplib::Response& response,
                              const httplib::ContentReader& content) {
    answer(request, response, &content);
  };
  constexpr const char* kAll = ".*";  // endpoints() has the paths
  http.Get(kAll, plain).Options(kAll, plain).Post(kAll, reading);
  http.Put(kAll, reading).Patch(kAll, reading).Delete(kAll, reading);
  // What the library itself refuses.
  http.set_error_handler([&](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    response.set_content(json_text(error_json(request.path, response.status,
                                              "the request is not HTTP as expected.")),
                         "application/json");
  });
}

Door::Options Server::Members::door_options() {
  // Texts that are answered have a thread each; what is more is refused at once.
  constexpr int64_t kMostThreads = 512, kOthers = 16;
  const ServeOptions& options = service.options();
  return {.most_connections = options.max_connections,
          .most_body = options.max_body,
          .threads = std::min(kMostThreads, options.max_queue + kOthers),
          .read_seconds = options.read_timeout,
          .send_seconds = options.timeout,
          .answer =
              [this](Connection& connection, bool last) {
                answered_here = &connection;
                connection.understood = false;
                return http.answer(connection, last) && connection.understood;
              },
          .refusal = [this](int status, const std::string& problem,
                            std::string_view head) { return refusal(status, problem, head); },
          .counts = &service.connections()};
}

// The response to what is not even given to the library.
std::string Server::Members::refusal(int status, const std::string& problem,
                                     std::string_view head) const {
  const size_t space = head.find(' ');  // behind the method
  const std::string path(space < head.size() ? head.substr(space + 1, 4) : "");
  const std::string body = json_text(error_json(path, status, problem));
  service.metrics().count("unread", status, 0);
  std::cerr << fmt::format("- {}: {}\n", status, problem);
  return fmt::format(
      "HTTP/1.1 {} Refused\r\nConnection: close\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      status, body.size(), body);
}

Json Server::Members::body_of(const httplib::Request& request,
                              const httplib::ContentReader& content, const CallEnd& end,
                              bool& is_form) const {
  const int64_t most = service.options().max_body;
  const std::string type = request.get_header_value("Content-Type");
  is_form = !type.starts_with("application/json");
  if (request.is_multipart_form_data()) return read_parts(content, most, end);
  return read_body(type, read_bytes(content, most, end));
}

Reply Server::Members::reply_to(const httplib::Request& request,
                                const httplib::ContentReader* content, const CallEnd& end) {
  std::string allowed;
  const Endpoint* const endpoint = find_endpoint(request.method, request.path, allowed);
  if (endpoint == nullptr && !allowed.empty()) {
    refuse(405, request.path, " takes ", allowed, ", got ", request.method, '.');
  }
  if (endpoint == nullptr) refuse(404, "there is no ", request.path, " here; see /openapi.json.");
  Call call{.end = end, .host = request.get_header_value("Host")};
  bool is_form = false;
  if (content != nullptr) {
    call.body = body_of(request, *content, end, is_form);
  } else if (!endpoint->fields.empty()) {
    is_form = true;
    for (const auto& [name, value] : request.params) call.body[name] = value;
  }
  if (!keys.empty() && !endpoint->open && !is_key(keys, key_of(request, call.body))) {
    refuse(401, "expected a key, as in 'Authorization: Bearer KEY'.");
  }
  if (is_form) read_form_values(*endpoint, call.body);
  check_fields(*endpoint, call.body);
  return endpoint->answer(service, call);
}

// Pages of other origins may ask only if --cors says so; a browser asks before it lets them.
void Server::Members::add_cors(const httplib::Request& request, httplib::Response& response,
                               Reply& reply) const {
  const std::string& allowed = service.options().cors;
  const std::string origin = request.get_header_value("Origin");
  if (allowed.empty() || origin.empty()) return;
  if (allowed != "*") response.set_header("Vary", "Origin");
  if (allowed != "*" && allowed != origin) return;
  response.set_header("Access-Control-Allow-Origin", allowed);
  if (request.method != "OPTIONS" || !request.has_header("Access-Control-Request-Method")) return;
  reply = {.status = 204};
  response.set_header("Access-Control-Allow-Methods", "GET, POST");
  response.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type");
  response.set_header("Access-Control-Max-Age", "600");
}

void Server::Members::answer(const httplib::Request& request, httplib::Response& response,
                             const httplib::ContentReader* content) {
  answered_here->understood = true;
  const Clock::time_point begin = answered_here->arrived;
  CallEnd end{.cancelled = answered_here->cancelled};
  end.deadline = begin + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(service.options().timeout));
  {
    const std::lock_guard lock(mutex);
    std::erase_if(running, [](const auto& call) { return call.expired(); });
    running.push_back(end.cancelled);
  }
  Reply reply;
  try {
    reply = reply_to(request, content, end);
  } catch (const HttpError& error) {
    reply = json_reply(error_json(request.path, error.status(), error.what()));
    reply.status = error.status();
  } catch (const Error& error) {
    // What a text or an option of the request made the libraries refuse.
    const bool theirs = error.kind() == ErrorKind::kConfig || error.kind() == ErrorKind::kData;
    reply = json_reply(error_json(request.path, theirs ? 400 : 500, error.what()));
    reply.status = theirs ? 400 : 500;
  } catch (const std::exception& error) {
    reply = json_reply(error_json(request.path, 500, error.what()));
    reply.status = 500;
  }
  std::string allowed;
  const bool known = find_endpoint(request.method, request.path, allowed) || !allowed.empty();
  const std::string path = known ? request.path : "other";
  service.metrics().count(path, reply.status, seconds_since(begin));
  std::cerr << fmt::format("{} {} {} {:.1f} ms\n", request.method, printable(path), reply.status,
                           1e3 * seconds_since(begin));
  add_cors(request, response, reply);
  if (reply.status == 429 || reply.status == 503) response.set_header("Retry-After", "1");
  if (reply.status == 405) response.set_header("Allow", allowed);
  if (reply.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  send(std::move(reply), response, end);
}

void Server::Members::send(Reply reply, httplib::Response& response, const CallEnd& end) const {
  response.status = reply.status;
  if (!reply.stream) {
    response.set_content(reply.body, reply.type);
    return;
  }
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider(
      reply.type,
      [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
        stream([&](std::string_view text) {
          return sink.is_writable() && sink.write(text.data(), text.size());
        });
        sink.done();
        return true;
      },
      [cancelled = end.cancelled](bool) { cancelled->store(true); });
}

void Server::Members::cancel_running() {
  const std::lock_guard lock(mutex);
  for (const auto& call : running) {
    if (const auto cancelled = call.lock()) cancelled->store(true);
  }
}

Server::Server(Service& service) : members_(std::make_unique<Members>(service)) {
  members_->prepare();
  const ServeOptions& options = service.options();
  Library& http = members_->http;
  const bool any = options.port == 0;
  if (any) port_ = http.bind_to_any_port(options.host);
  if (!any && http.bind_to_port(options.host, options.port)) port_ = options.port;
  if (port_ <= 0) {
    fail(ErrorKind::kRuntime, "[serve] cannot listen on ", options.host, ':', options.port, ": ",
         std::strerror(errno), '.');
  }
  // The library's queue of connections has room for five.
  ::listen(http.listening(), SOMAXCONN);
  members_->door = std::make_unique<Door>(http.listening(), members_->door_options());
}

Server::~Server() = default;

void Server::run() {
  std::thread grace;
  std::atomic<bool> done{false};
  grace = std::thread([&] {
    while (!members_->service.ends.load() && !done.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const Clock::time_point begin = Clock::now();
    while (!done.load() && seconds_since(begin) < members_->service.options().grace) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (done.load()) return;
    members_->cancel_running();
    members_->door->give_up();
  });
  members_->door->run();
  done = true;
  grace.join();
}

void Server::stop() {
  members_->service.ends = true;
  members_->door->stop();
}

}  // namespace tapestry
