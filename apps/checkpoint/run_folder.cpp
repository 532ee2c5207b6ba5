#include "apps/checkpoint/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/checkpoint/file_names.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using internal::flush_folder;
using internal::reached;
using internal::rename_path;
using internal::system_failure;

constexpr const char* kPrefix = "checkpoint-";

// The step of "checkpoint-<step>", or -1.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + std::strlen(kPrefix), end, step);
  return error == std::errc() && rest == end ? step : -1;
}

// True for files that only an interrupted commit leaves behind.
bool is_left_over(const std::string& name) {
  const bool ours = name.starts_with(kPrefix) || name.starts_with(kIncidentPrefix) ||
                    name.starts_with("best.") || name.starts_with("last.") ||
                    name.starts_with("config.yaml.") || name.starts_with("metrics.jsonl.") ||
                    name.starts_with("samples.jsonl.") || name.starts_with("starts.jsonl.");
  return ours && name.find(".tmp-") != std::string::npos;
}

// Whether both are checkpoints with the same files, by their checksums.
bool same_manifest(const std::string& a, const std::string& b) {
  if (!is_checkpoint(a) || !is_checkpoint(b)) return false;
  return read_file(a + "/MANIFEST.json") == read_file(b + "/MANIFEST.json");
}

// The step that a link in the run folder names, or -1.
int64_t linked_step(const std::string& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? -1 : step_of(target.filename().string());
}

}  // namespace

std::vector<int64_t> checkpoint_steps(const std::string& run_folder) {
  std::vector<int64_t> steps;
  for (const auto& entry : fs::directory_iterator(run_folder)) {
    const int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory()) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string resolve_checkpoint(const std::string& path) {
  if (is_checkpoint(path)) return path;
  for (const char* link : {"/best", "/last"}) {
    if (is_checkpoint(path + link)) return path + link;
  }
  if (fs::is_directory(path)) {  // links lost, as when the folder was copied without them
    const std::vector<int64_t> steps = checkpoint_steps(path);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const std::string folder = concat(path, '/', kPrefix, *step);
      if (is_checkpoint(folder)) return folder;
    }
  }
  fail(ErrorKind::kData, "[checkpoint] ", path,
       " is neither a checkpoint nor a run folder with one.");
}

RunFolder::RunFolder(const std::string& path, const FolderUser& user) : path_(path) {
  if (is_checkpoint(path_)) {  // it would go on being what others read here
    fail(ErrorKind::kConfig, '[', user.who, "] ", path_, " is a checkpoint; choose another ",
         user.key, '.');
  }
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    fail(ErrorKind::kConfig, '[', user.who, "] cannot create ", path_, ": ", error.message(), '.');
  }
  if (fs::exists(file(kSweepFile))) {  // both would write a report.html
    fail(ErrorKind::kConfig, '[', user.who, "] ", path_,
         " is the folder of a sweep; choose another ", user.key, '.');
  }
  lock_.emplace(path_, user.who, FolderLock::Children::kDoNot);
  if (!lock_->take()) {
    fail(ErrorKind::kConfig, '[', user.who, "] another ", user.work, " is running in ", path_,
         "; choose another ", user.key, '.');
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
  for (const std::string link : {"best", "last"}) {
    if (!fs::is_directory(fs::symlink_status(file(link)))) continue;
    // A tool that follows links put a copy in its place. Any other folder is not ours to replace.
    const std::vector<int64_t> all = steps();
    const auto copied = std::ranges::find_if(
        all, [&](int64_t step) { return same_manifest(checkpoint_path(step), file(link)); });
    if (copied == all.end()) {
      fail(ErrorKind::kConfig, '[', user.who, "] ", file(link),
           " is a folder where a link belongs, and no copy of a checkpoint here: move it away.");
    }
    fs::remove_all(file(link));
    point(link, *copied);
  }
}

std::vector<int64_t> RunFolder::steps() const { return checkpoint_steps(path_); }

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

bool RunFolder::is_whole(int64_t step) const {
  try {
    Checkpoint(checkpoint_path(step)).open_all();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void RunFolder::mend_links(int64_t last, int64_t best) const {
  for (const auto& [link, step] : {std::pair{"best", best}, std::pair{"last", last}}) {
    if (step >= 0 && linked_step(file(link)) != step && is_whole(step)) point(link, step);
  }
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  replace_file(file(name), text);
}

void RunFolder::commit(int64_t step, const CheckpointContent& content, bool best, int64_t keep,
                       const std::function<void(const std::string&)>& report) {
  write_checkpoint(checkpoint_path(step), content);
  if (best) point("best", step);
  point("last", step);
  if (keep <= 0) return;
  const std::vector<int64_t> all = steps();
  const int64_t best_step = linked_step(file("best")), last_step = linked_step(file("last"));
  int64_t excess = static_cast<int64_t>(all.size()) - keep;
  for (const int64_t old : all) {
    if (excess <= 0) break;
    if (old == best_step || old == last_step || old == protected_step_) continue;
    std::error_code error;
    // Out of sight first: an interrupted deletion must not look like a damaged checkpoint.
    const std::string doomed = concat(checkpoint_path(old), ".tmp-", getpid());
    fs::rename(checkpoint_path(old), doomed, error);
    reached("out of sight");
    if (!error) fs::remove_all(doomed, error);
    reached("deleted");
    --excess;
    if (error && report && undeleted_.insert(old).second) {
      report(concat(checkpoint_path(old), " cannot be deleted: ", error.message()));
    }
  }
}

std::optional<Checkpoint> RunFolder::newest(
    const std::function<void(const std::string&)>& report) const {
  std::vector<int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      Checkpoint checkpoint(checkpoint_path(*step));
      checkpoint.open_all();
      return checkpoint;
    } catch (const Error& error) {
      report(concat(checkpoint_path(*step), " is passed over: ", error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace tapestry
