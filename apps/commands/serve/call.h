// A request as handlers see it, and what they answer.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

using Json = nlohmann::ordered_json;

/// When a request must be answered, and whether somebody still waits for the answer.
struct CallEnd {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

/// Waits until ready() is true, under `lock`. Throws HttpError(503) if the deadline comes first, or
/// --grace ends, and marks the request as cancelled.
void wait_for_answer(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                     const CallEnd& end, const std::function<bool()>& ready);

/// A thing that one request at a time may use, for as long as a Turn of it lives.
class Turns {
 public:
  class Turn {
   public:
    /// Waits for it. Throws as wait_for_answer().
    Turn(Turns& turns, const CallEnd& end);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;
};

/// Throws HttpError(500) with what a search failed by, or HttpError(503) if the call was cancelled:
/// its parts that wait fail then, too.
[[noreturn]] void refuse_failed(const CallEnd& end, const std::string& problem);

/// A request whose body has the types of its endpoint's fields.
struct Call {
  Json body = Json::object();
  CallEnd end = {};
  std::string host = {};  ///< as the client calls this server

  /// True if the field is there and not null.
  bool has(const char* field) const;
  std::string text(const char* field, const std::string& otherwise = "") const;
  int64_t integer(const char* field, int64_t otherwise) const;
  double number(const char* field, double otherwise) const;
  bool is_true(const char* field) const;
  /// The field "seed". Throws HttpError(400) for one below 0.
  std::optional<uint64_t> seed() const;
  /// Of a field that is a text or a list of texts.
  std::vector<std::string> texts(const char* field) const;
};

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  /// Instead of a body: calls write(text) for each part. It returns false if nobody reads any more.
  using Write = std::function<bool(std::string_view)>;
  std::function<void(const Write& write)> stream = {};
};

/// The object as a reply; ill-formed bytes become U+FFFD.
Reply json_reply(const Json& json);
std::string json_text(const Json& json);

/// For "created".
int64_t unix_seconds();

}  // namespace tapestry
