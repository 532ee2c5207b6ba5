#include "apps/commands/serve/call.h"

#include "apps/commands/serve/http_error.h"

namespace tapestry {

void wait_for_answer(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                     const CallEnd& end, const std::function<bool()>& ready) {
  // The end of --grace sets a flag and wakes nobody.
  constexpr std::chrono::milliseconds kLook{50};
  while (!ready()) {
    if (end.cancelled->load()) refuse(503, "the server ends.");
    const auto now = std::chrono::steady_clock::now();
    if (now >= end.deadline) {
      end.cancelled->store(true);
      refuse(503, "the answer takes longer than --timeout.");
    }
    changed.wait_until(lock, std::min(now + kLook, end.deadline), ready);
  }
}

Turns::Turn::Turn(Turns& turns, const CallEnd& end) : turns_(turns) {
  std::unique_lock lock(turns_.mutex_);
  wait_for_answer(turns_.changed_, lock, end, [&] { return !turns_.taken_; });
  turns_.taken_ = true;
}

Turns::Turn::~Turn() {
  {
    const std::lock_guard lock(turns_.mutex_);
    turns_.taken_ = false;
  }
  turns_.changed_.notify_one();
}

void refuse_failed(const CallEnd& end, const std::string& problem) {
  if (end.cancelled->load()) refuse(503, "the server ends.");
  end.cancelled->store(true);
  refuse(500, problem);
}

bool Call::has(const char* field) const {
  const auto found = body.find(field);
  return found != body.end() && !found->is_null();
}

std::string Call::text(const char* field, const std::string& otherwise) const {
  return has(field) ? body.at(field).get<std::string>() : otherwise;
}

int64_t Call::integer(const char* field, int64_t otherwise) const {
  return has(field) ? body.at(field).get<int64_t>() : otherwise;
}

double Call::number(const char* field, double otherwise) const {
  return has(field) ? body.at(field).get<double>() : otherwise;
}

bool Call::is_true(const char* field) const { return has(field) && body.at(field).get<bool>(); }

std::optional<uint64_t> Call::seed() const {
  if (!has("seed")) return std::nullopt;
  const int64_t given = integer("seed", 0);
  if (given < 0) refuse(400, "the field 'seed' must be at least 0, got ", given, '.');
  return static_cast<uint64_t>(given);
}

std::vector<std::string> Call::texts(const char* field) const {
  if (!has(field)) return {};
  const Json& value = body.at(field);
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Reply json_reply(const Json& json) { return {.body = json_text(json)}; }

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace tapestry
