// The time that strftime_now() of chat templates shows.
#pragma once

#include <ctime>
#include <string>

namespace tapestry {

/// When the program first asked: all talks that it reads have one time.
inline std::time_t time_of_talks() {
  static const std::time_t kNow = std::time(nullptr);
  return kNow;
}

/// Its day, "2025-03-05", if the template asks for the time; else "". Templates ask for days.
inline std::string day_of_talks(const std::string& template_source) {
  if (template_source.find("strftime_now") == std::string::npos) return "";
  const std::time_t now = time_of_talks();
  std::tm local = {};
  localtime_r(&now, &local);
  char day[16] = {};
  return {day, std::strftime(day, sizeof(day), "%F", &local)};
}

}  // namespace tapestry
