// Paths of files that are read, and of folders that are written.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/config/session.h"
#include "data/files/file_pattern.h"

namespace tapestry {

namespace {

/// Shortened for messages: nobody reads 10 kB of a path.
std::string shortened(const std::string& text) {
  constexpr size_t kMost = 200;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

/// What is against reading the file, or an empty string.
std::string reason_against(const std::string& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return concat("cannot be read: ", error.message());
  if (!exists) return "does not exist";
  if (std::filesystem::is_directory(path, error)) return "is a directory, expected a file";
  // A training reads its data for the tokenizer, for its checksum and for the model, and again when
  // it resumes; opening a pipe without a writer would block.
  if (std::filesystem::is_fifo(path, error)) {
    return "is a pipe, which is read only once, expected a file";
  }
  if (access(path.c_str(), R_OK) != 0) return concat("cannot be read: ", std::strerror(errno));
  return "";
}

/// The same with the file.
std::string unreadable(const std::string& path) {
  const std::string reason = reason_against(path);
  return reason.empty() ? "" : concat("file ", shortened(path), ' ', reason);
}

/// The same for all files that match.
std::string unreadable_pattern(const std::string& path) {
  const std::vector<std::string> files = matching_files(path);
  if (files.empty()) return concat("no file matches ", shortened(path));
  for (const std::string& file : files) {
    if (std::string reason = unreadable(file); !reason.empty()) return reason;
  }
  return "";
}

}  // namespace

bool ConfigSection::checks_files() const { return session_.options().check_files; }

void ConfigSection::read_input_file(const std::string& key, std::string& path,
                                    const char* meaning) {
  note(key, "file", meaning);
  read_file(key, path, unreadable);
}

void ConfigSection::read_input_files(const std::string& key, std::string& path,
                                     const char* meaning) {
  note(key, "files", meaning);
  read_file(key, path, unreadable_pattern);
}

void ConfigSection::read_file(const std::string& key, std::string& path,
                              std::string (*problem)(const std::string& path)) {
  if (const ConfigNode* node = take(key)) {
    const bool list_or_map =
        node->kind == ConfigNode::Kind::kList || node->kind == ConfigNode::Kind::kMap;
    if (list_or_map || (node->text.empty() && demanded_.contains(key))) {
      mistyped(key, "the path of a file", *node);
    } else if (node->text.empty()) {
      path.clear();
    } else {
      const std::filesystem::path base = node->location.directory;
      path = std::filesystem::absolute(base / node->text).lexically_normal().string();
      const std::string reason = session_.options().check_files ? problem(path) : "";
      if (!reason.empty()) complain(key, '\'', full_name(key), "': ", reason, '.');
    }
  }
  put(key, string_node(path));
}

void ConfigSection::read_input_file_if(bool applies, const std::string& why, const std::string& key,
                                       std::string& path, const char* meaning) {
  if (reads_optional(applies, why, key, "file", !path.empty(), meaning))
    read_input_file(key, path, meaning);
}

void ConfigSection::read_input_files_if(bool applies, const std::string& why,
                                        const std::string& key, std::string& path,
                                        const char* meaning) {
  if (reads_optional(applies, why, key, "files", !path.empty(), meaning))
    read_input_files(key, path, meaning);
}

void ConfigSection::read_output_path(const std::string& key, std::string& path,
                                     const char* meaning) {
  note(key, "folder", meaning);
  read_folder(key, path);
}

void ConfigSection::read_optional_path(const std::string& key, std::string& path,
                                       const char* meaning) {
  note(key, "folder", meaning);
  session_.note_value(full_name(key), nullptr);
  if (given(key) || !path.empty()) {
    read_folder(key, path);
  } else {
    know(key);
  }
}

void ConfigSection::read_folder(const std::string& key, std::string& path) {
  const ConfigNode* node = take(key);
  if (node != nullptr && (node->kind != ConfigNode::Kind::kScalar || node->text.empty())) {
    mistyped(key, "the path of a folder", *node);
  } else if (node != nullptr) {
    const std::string given = std::filesystem::absolute(node->text).lexically_normal();
    std::error_code error;
    if (session_.options().check_files && !std::filesystem::exists(given, error) && error) {
      complain(key, '\'', full_name(key), "': folder ", shortened(given),
               " cannot be used: ", error.message(), '.');
    } else {
      path = given;
    }
  }
  put(key, string_node(path));
}

}  // namespace tapestry
