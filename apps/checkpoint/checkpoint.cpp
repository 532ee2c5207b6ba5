#include "apps/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/files.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kPrefix = "checkpoint-";

constexpr const char* kFormat = "tapestry checkpoint 1";

// Tells a test how far the protocol has come.
void reached(const std::string& stage) {
  if (internal::checkpoint_stage_hook != nullptr) internal::checkpoint_stage_hook(stage.c_str());
}

[[noreturn]] void system_failure(const std::string& action, const std::string& path) {
  fail(ErrorKind::kRuntime, "[checkpoint] cannot ", action, ' ', path, ": ", std::strerror(errno),
       '.');
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) system_failure("open", path);
  }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void flush_folder(const std::string& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  if (fsync(folder.get()) != 0) system_failure("flush", path);
  reached("folder flushed");
}

void write_file(const std::string& path, const std::string& bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_failure("write", path);
    done += static_cast<size_t>(count);
  }
  if (fsync(file.get()) != 0) system_failure("flush", path);
  reached("file written");
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) system_failure("rename " + from + " to", to);
  reached("renamed");
}

std::string checksum(const std::string& bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string manifest_of(const CheckpointFiles& files) {
  Json entries = Json::object();
  for (const auto& [name, bytes] : files) {
    entries[name] = {{"bytes", bytes.size()}, {"xxh3_64", checksum(bytes)}};
  }
  return Json{{"format", kFormat}, {"files", entries}}.dump(2) + "\n";
}

struct ManifestEntry {
  uint64_t bytes;
  std::string checksum;
};

// A name in a manifest stays inside its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
}

std::map<std::string, ManifestEntry> read_manifest(const std::string& path) {
  const Json manifest = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  std::map<std::string, ManifestEntry> entries;
  try {  // nlohmann throws where a key is missing or has another type
    if (manifest.at("format").get<std::string>() != kFormat) {
      fail(ErrorKind::kData, "[checkpoint] ", path, " has format ", manifest.at("format").dump(),
           ", expected \"", kFormat, "\".");
    }
    for (const auto& [name, entry] : manifest.at("files").get_ref<const Json::object_t&>()) {
      if (!is_plain_name(name)) {
        fail(ErrorKind::kData, "[checkpoint] ", path, " names '", name, "', expected a file name.");
      }
      entries[name] = {entry.at("bytes"), entry.at("xxh3_64")};
    }
  } catch (const Json::exception&) {
    fail(ErrorKind::kData, "[checkpoint] ", path, " is damaged: it is no list of files.");
  }
  return entries;
}

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// The step of "checkpoint-<step>", or -1.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + std::strlen(kPrefix), end, step);
  return error == std::errc() && rest == end ? step : -1;
}

// Steps with a checkpoint folder, ascending.
std::vector<int64_t> steps_in(const std::string& run_folder) {
  std::vector<int64_t> steps;
  for (const auto& entry : fs::directory_iterator(run_folder)) {
    const int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory()) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// True for what only an interrupted commit leaves behind.
bool is_left_over(const std::string& name) {
  const bool ours = name.starts_with(kPrefix) || name.starts_with("best.") ||
                    name.starts_with("last.") || name.starts_with("tokens-");
  return ours && name.find(".tmp-") != std::string::npos;
}

// The step that a link in the run folder names, or -1.
int64_t linked_step(const std::string& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? -1 : step_of(target.filename().string());
}

}  // namespace

void write_checkpoint(const std::string& path, const CheckpointFiles& files) {
  const std::string folder = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string temporary = concat(folder, ".tmp-", getpid());
  std::error_code error;
  fs::remove_all(temporary, error);
  try {
    if (!fs::create_directories(temporary, error) && error) {
      fail(ErrorKind::kRuntime, "[checkpoint] cannot create ", temporary, ": ", error.message(),
           '.');
    }
    for (const auto& [name, bytes] : files) write_file(temporary + "/" + name, bytes);
    write_file(temporary + "/" + kManifest, manifest_of(files));
    flush_folder(temporary);
    if (fs::exists(folder)) {  // a folder cannot be renamed over one that is not empty
      const std::string old = concat(folder, ".old.tmp-", getpid());
      fs::remove_all(old, error);
      rename_path(folder, old);
      rename_path(temporary, folder);
      fs::remove_all(old, error);
    } else {
      rename_path(temporary, folder);
    }
    flush_folder(parent_of(folder));
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

CheckpointFiles read_checkpoint(const std::string& folder) {
  CheckpointFiles files;
  for (const auto& [name, entry] : read_manifest(folder + "/" + kManifest)) {
    const std::string path = folder + "/" + name;
    std::string bytes = read_file(path);
    if (bytes.size() != entry.bytes) {
      fail(ErrorKind::kData, "[checkpoint] ", path, " has ", bytes.size(),
           " bytes, its manifest says ", entry.bytes, '.');
    }
    if (checksum(bytes) != entry.checksum) {
      fail(ErrorKind::kData, "[checkpoint] ", path, " is damaged: its checksum is ",
           checksum(bytes), ", its manifest says ", entry.checksum, '.');
    }
    files[name] = std::move(bytes);
  }
  return files;
}

std::string resolve_checkpoint(const std::string& path) {
  if (fs::exists(path + "/" + kManifest)) return path;
  for (const char* link : {"/best", "/last"}) {
    if (fs::exists(path + link + "/" + kManifest)) return path + link;
  }
  if (fs::is_directory(path)) {  // links lost, as when the folder was copied without them
    const std::vector<int64_t> steps = steps_in(path);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const std::string folder = concat(path, '/', kPrefix, *step);
      if (fs::exists(folder + "/" + kManifest)) return folder;
    }
  }
  fail(ErrorKind::kData, "[checkpoint] ", path,
       " is neither a checkpoint nor a run folder with one.");
}

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    fail(ErrorKind::kConfig, "[run] cannot create ", path_, ": ", error.message(), '.');
  }
  lock_ = open(file(".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    fail(ErrorKind::kConfig, "[run] cannot write to ", path_, ": ", std::strerror(errno), '.');
  }
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    fail(ErrorKind::kConfig, "[run] another training is running in ", path_,
         "; choose another output_dir.");
  }
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (!is_left_over(name)) continue;
    // A replaced folder that never got its successor is still the only copy: it goes back.
    if (const size_t old = name.find(".old.tmp-"); old != std::string::npos) {
      const std::string original = file(name.substr(0, old));
      if (!fs::exists(original)) {
        rename_path(entry.path().string(), original);
        continue;
      }
    }
    fs::remove_all(entry.path(), error);
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) close(lock_);
}

std::vector<int64_t> RunFolder::steps() const { return steps_in(path_); }

std::string RunFolder::checkpoint_path(int64_t step) const {
  return file(kPrefix + std::to_string(step));
}

void RunFolder::point(const std::string& link, int64_t step) const {
  const std::string temporary = concat(file(link), ".tmp-", getpid());
  unlink(temporary.c_str());
  if (symlink((kPrefix + std::to_string(step)).c_str(), temporary.c_str()) != 0) {
    system_failure("create", temporary);
  }
  reached("link made");
  rename_path(temporary, file(link));
  flush_folder(path_);
}

void RunFolder::commit(int64_t step, const CheckpointFiles& files, bool best, int64_t keep) {
  write_checkpoint(checkpoint_path(step), files);
  if (best) point("best", step);
  point("last", step);
  if (keep <= 0) return;
  const std::vector<int64_t> all = steps();
  const int64_t best_step = linked_step(file("best")), last_step = linked_step(file("last"));
  int64_t excess = static_cast<int64_t>(all.size()) - keep;
  for (const int64_t old : all) {
    if (excess <= 0) break;
    if (old == best_step || old == last_step) continue;
    std::error_code error;
    // Out of sight first: an interrupted deletion must not look like a damaged checkpoint.
    const std::string doomed = concat(checkpoint_path(old), ".tmp-", getpid());
    fs::rename(checkpoint_path(old), doomed, error);
    reached("out of sight");
    fs::remove_all(doomed, error);
    reached("deleted");
    --excess;
  }
}

std::optional<RunFolder::Loaded> RunFolder::newest(
    const std::function<void(const std::string&)>& report) const {
  std::vector<int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      return Loaded{*step, read_checkpoint(checkpoint_path(*step))};
    } catch (const Error& error) {
      report(concat(checkpoint_path(*step), " is passed over: ", error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace tapestry
