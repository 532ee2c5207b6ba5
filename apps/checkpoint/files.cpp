#include "apps/checkpoint/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/checkpoint/plain_folder.h"
#include "data/files/files.h"

namespace tapestry {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace internal {

// Tells a test how far the protocol has come.
void reached(const char* stage) {
  if (checkpoint_stage_hook != nullptr) checkpoint_stage_hook(stage);
}

void system_failure(const std::string& action, const std::string& path) {
  fail(ErrorKind::kRuntime, "[checkpoint] cannot ", action, ' ', path, ": ", std::strerror(errno),
       '.');
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) system_failure("rename " + from + " to", to);
  reached("renamed");
}

}  // namespace internal

namespace {

using internal::reached;
using internal::rename_path;
using internal::system_failure;

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kFormat = "tapestry checkpoint 1";

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

// Returns the file's entry in the manifest.
Json stream_file(const std::string& path, const FileContent& content) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  Checksum checksum;
  uint64_t size = 0;
  // A part is in the processor's cache when write() comes to it.
  const auto sink = [&](const void* bytes, size_t count) {
    size += count;
    for (const auto* at = static_cast<const char*>(bytes); count > 0;) {
      const size_t part = std::min<size_t>(count, kPartBytes);
      checksum.add(at, part);
      for (size_t done = 0; done < part;) {
        const ssize_t written = write(file.get(), at + done, part - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) system_failure("write", path);
        done += static_cast<size_t>(written);
      }
      at += part;
      count -= part;
    }
  };
  if (const auto* bytes = std::get_if<std::string>(&content)) {
    sink(bytes->data(), bytes->size());
  } else {
    std::get<1>(content)(sink);
  }
  if (fsync(file.get()) != 0) system_failure("flush", path);
  reached("file written");
  return {{"bytes", size}, {"xxh3_64", checksum.text()}};
}

// A name in a manifest stays inside its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
}

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

void internal::flush_folder(const std::string& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  if (fsync(folder.get()) != 0) system_failure("flush", path);
  reached("folder flushed");
}

namespace {

void write_folder(const std::string& path, const CheckpointContent& content, bool with_manifest) {
  const std::string folder = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string temporary = concat(folder, ".tmp-", getpid());
  std::error_code error;
  fs::remove_all(temporary, error);
  try {
    if (!fs::create_directories(temporary, error) && error) {
      fail(ErrorKind::kRuntime, "[checkpoint] cannot create ", temporary, ": ", error.message(),
           '.');
    }
    Json entries = Json::object();
    for (const auto& [name, file] : content) {
      if (const size_t slash = name.find('/'); slash != std::string::npos) {
        fs::create_directories(temporary + "/" + name.substr(0, slash));
      }
      entries[name] = stream_file(temporary + "/" + name, file);
    }
    if (with_manifest) {
      const Json manifest = {{"format", kFormat}, {"files", std::move(entries)}};
      stream_file(temporary + "/" + kManifest, manifest.dump(2) + "\n");
    }
    internal::flush_folder(temporary);
    if (fs::exists(folder)) {  // a folder cannot be renamed over one that is not empty
      const std::string old = concat(folder, ".old.tmp-", getpid());
      fs::remove_all(old, error);
      rename_path(folder, old);
      rename_path(temporary, folder);
      fs::remove_all(old, error);
    } else {
      rename_path(temporary, folder);
    }
    internal::flush_folder(parent_of(folder));
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

}  // namespace

void write_checkpoint(const std::string& folder, const CheckpointContent& content) {
  write_folder(folder, content, /*with_manifest=*/true);
}

void replace_file(const std::string& path, const FileContent& content) {
  const std::string temporary = concat(path, ".tmp-", getpid());
  unlink(temporary.c_str());  // or the target of a link would be written
  try {
    stream_file(temporary, content);
    rename_path(temporary, path);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  internal::flush_folder(parent_of(path));
}

void write_plain_folder(const std::string& folder, const CheckpointContent& content) {
  refuse_existing(folder);
  write_folder(folder, content, /*with_manifest=*/false);
}

void refuse_existing(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error) || (fs::is_directory(folder) && fs::is_empty(folder))) return;
  fail(ErrorKind::kConfig, "[output] ", folder, " exists; choose another --output.");
}

bool is_checkpoint(const std::string& folder) { return fs::exists(folder + "/" + kManifest); }

Checkpoint::Checkpoint(const std::string& folder) : folder_(folder) {
  const std::string path = folder + "/" + kManifest;
  const Json manifest = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  try {  // nlohmann throws if a key is missing or has another type
    if (manifest.at("format").get<std::string>() != kFormat) {
      fail(ErrorKind::kData, "[checkpoint] ", path, " has format ", manifest.at("format").dump(),
           ", expected \"", kFormat, "\".");
    }
    for (const auto& [name, entry] : manifest.at("files").get_ref<const Json::object_t&>()) {
      if (!is_plain_name(name)) {
        fail(ErrorKind::kData, "[checkpoint] ", path, " names '", name, "', expected a file name.");
      }
      files_[name] = {.bytes = entry.at("bytes"), .checksum = entry.at("xxh3_64")};
    }
  } catch (const Json::exception&) {
    fail(ErrorKind::kData, "[checkpoint] ", path, " is damaged: it is no list of files.");
  }
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

const ByteSource& Checkpoint::open(const std::string& name) {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    fail(ErrorKind::kData, "[checkpoint] ", folder_, " has no ", name, '.');
  }
  File& file = found->second;
  if (file.source.read) return file.source;
  ByteSource source = open_source(folder_ + "/" + name);
  if (source.size != file.bytes) {
    fail(ErrorKind::kData, "[checkpoint] ", source.name, " has ", source.size,
         " bytes, its manifest says ", file.bytes, '.');
  }
  if (const std::string checksum = checksum_of(source); checksum != file.checksum) {
    fail(ErrorKind::kData, "[checkpoint] ", source.name, " is damaged: its checksum is ", checksum,
         ", its manifest says ", file.checksum, '.');
  }
  return file.source = std::move(source);
}

void Checkpoint::open_all() {
  for (const auto& [name, file] : files_) open(name);
}

}  // namespace tapestry
