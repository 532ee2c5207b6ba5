#include "apps/run/sweep/record.h"

#include <time.h>

#include <filesystem>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/files.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/run/signals.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
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
      if (then == today) continue;
      // The whole has no name; it differs if the file holds something else in place of a sweep.
      return concat(key.empty() ? "it" : key.substr(1), " was ", then, " and is ", today);
    }
  }
  return "";
}

namespace {

// True for a file that only an interrupted save leaves behind.
bool is_left_over(const std::string& name) {
  return name.starts_with(kSweepFile) && name.find(".tmp-") != std::string::npos;
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

// `now` with only as many trials as `before` has, where more change nothing for those: without
// halving no trial knows of the others.
Json as_many_trials(const Json& before, Json now) {
  const size_t count = before.is_object() ? before.value("trials", Json()).size() : 0;
  if (count >= now.at("trials").size() || now.at("updates").size() != 1) return now;
  for (Json* const of_trials : {&now["trials"], &now["updates"][0]}) {
    while (of_trials->size() > count) of_trials->erase(of_trials->size() - 1);
  }
  now["survivors"] = Json::array({count});
  return now;
}

}  // namespace

void expect_folder_for_sweep(const std::string& folder) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::kConfig, "[sweep] expected a new folder or one with ", kSweepFile, ", got ",
         folder, what, "; choose another --output.");
  };
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) refuse(", a file");
  if (fs::exists(folder + '/' + kSweepFile)) return;
  if (fs::exists(folder + "/config.yaml") || !checkpoint_steps(folder).empty()) {
    refuse(", the folder of a run");
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    // A sweep that was killed before its first save leaves these.
    const std::string name = entry.path().filename().string();
    if (name != ".lock" && !is_left_over(name)) refuse(concat(" with ", name));
  }
}

std::optional<FolderLock> lock_for_sweep(const std::string& folder,
                                         const std::function<void(const std::string&)>& say) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    fail(ErrorKind::kConfig, "[sweep] cannot create ", folder, ": ", error.message(), '.');
  }
  FolderLock lock(folder, "sweep", FolderLock::Children::kShareIt);
  const double begun = steady_seconds();
  for (bool told = false; !lock.take(); told = true) {
    if (pending_signal() != 0) return std::nullopt;
    if (!told) say(concat("waits for trials of a sweep that was killed, which save in ", folder));
    if (steady_seconds() - begun > kMostWaiting) {
      fail(ErrorKind::kConfig, "[sweep] another sweep, or a trial of one, is running in ", folder,
           "; choose another --output.");
    }
    constexpr timespec kWhile = {.tv_sec = 0, .tv_nsec = 100'000'000};
    nanosleep(&kWhile, nullptr);
  }
  return lock;
}

SweepRecord::SweepRecord(const std::string& folder, const Json& identity)
    : path_(folder + '/' + kSweepFile), identity_(identity) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code error;
    if (is_left_over(entry.path().filename().string())) fs::remove(entry.path(), error);
  }
  if (fs::exists(path_)) {
    read(identity);
  } else {
    write();
  }
}

void SweepRecord::read(const Json& identity) {
  try {
    const Json file = Json::parse(read_file(path_));
    const Json before = file.at("sweep");
    const std::string other = difference(before, as_many_trials(before, identity));
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
  replace_file(path_, Json{{"sweep", identity_}, {"results", std::move(results)}}.dump(1) + '\n');
}

}  // namespace tapestry
