#include "apps/run/sweep/record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/checkpoint/files.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostWaiting = 30;  // seconds until killed trials have saved

}  // namespace

std::string difference(const Json& before, const Json& now) {
  const Json a = before.flatten(), b = now.flatten();
  const auto text_of = [](const Json& all, const std::string& key) {
    return all.contains(key) ? all[key].dump() : "nothing";
  };
  for (const Json& all : {a, b}) {
    for (const auto& [key, value] : all.items()) {
      const std::string then = text_of(a, key), today = text_of(b, key);
      if (then != today) return concat(key.substr(1), " was ", then, " and is ", today);
    }
  }
  return "";
}

namespace {

// Runs of nobody knows which values would count as trials.
void expect_no_trials(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || !name.starts_with("trial-")) continue;
    fail(ErrorKind::kConfig, "[sweep] expected a new folder or one with sweep.json, got ", folder,
         " with ", name, "; choose another --output.");
  }
}

Json json_of(const RungResult& result) {
  Json value{{"updates", result.updates}, {"outcome", result.outcome}};
  value["value"] = result.value ? Json(*result.value) : Json();
  return value;
}

RungResult result_of(const Json& value) {
  RungResult result;
  value.at("updates").get_to(result.updates);
  value.at("outcome").get_to(result.outcome);
  if (!value.at("value").is_null()) result.value = value["value"].get<double>();
  return result;
}

}  // namespace

SweepRecord::SweepRecord(const std::string& folder, const Json& identity)
    : folder_(folder), path_(folder + "/sweep.json"), identity_(identity) {
  lock();
  try {
    if (std::filesystem::exists(path_)) {
      read(identity);
    } else {
      expect_no_trials(folder_);
      write();
    }
  } catch (...) {
    close(lock_);
    throw;
  }
}

SweepRecord::~SweepRecord() { close(lock_); }

void SweepRecord::lock() {
  // Without O_CLOEXEC: a trial holds it, too, so that no two ever train in one folder.
  lock_ = open((folder_ + "/.lock").c_str(), O_RDWR | O_CREAT, 0644);
  if (lock_ < 0) {
    fail(ErrorKind::kConfig, "[sweep] cannot write to ", folder_, ": ", std::strerror(errno), '.');
  }
  const double begun = steady_seconds();
  while (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (steady_seconds() - begun > kMostWaiting) {
      close(lock_);
      fail(ErrorKind::kConfig, "[sweep] another sweep is running in ", folder_,
           "; choose another --output.");
    }
    constexpr timespec kWhile = {.tv_sec = 0, .tv_nsec = 100'000'000};
    nanosleep(&kWhile, nullptr);
  }
}

void SweepRecord::read(const Json& identity) {
  try {
    const Json file = Json::parse(read_file(path_));
    const std::string other = difference(file.at("sweep"), identity);
    if (!other.empty()) {
      fail(ErrorKind::kConfig, "[sweep] ", path_, " expected the sweep that began there, but ",
           other, "; choose another --output.");
    }
    for (const Json& entry : file.at("results")) {
      results_[{entry.at("run").get<std::string>(), entry.at("rung").get<size_t>()}] =
          result_of(entry);
    }
  } catch (const Json::exception& error) {
    fail(ErrorKind::kData, "[sweep] ", path_, " is damaged: ", error.what());
  }
  found_ = results_.size();
}

const RungResult* SweepRecord::find(const std::string& run, size_t rung) const {
  const auto found = results_.find({run, rung});
  return found == results_.end() ? nullptr : &found->second;
}

void SweepRecord::add(const std::string& run, size_t rung, RungResult result) {
  results_[{run, rung}] = std::move(result);
  write();
}

void SweepRecord::write() const {
  Json results = Json::array();
  for (const auto& [key, result] : results_) {
    Json entry{{"run", key.first}, {"rung", key.second}};
    entry.update(json_of(result));
    results.push_back(std::move(entry));
  }
  const std::string aside = path_ + ".tmp";
  write_file(aside, Json{{"sweep", identity_}, {"results", std::move(results)}}.dump(1) + '\n');
  internal::rename_path(aside, path_);
  internal::flush_folder(folder_);
}

}  // namespace tapestry
