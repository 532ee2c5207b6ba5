#include "apps/run/data_files.h"

#include <sys/stat.h>

#include <algorithm>

#include "apps/checkpoint/bytes.h"
#include "core/base/progress.h"

namespace tapestry {
namespace {

constexpr int64_t kAlwaysRead = int64_t{64} << 20;  // bytes; the cache of tokens reads these, too
constexpr int64_t kNanoseconds = 1'000'000'000;

std::string checksum_of_file(const std::string& path) {
  const ByteSource source = open_source(path);
  const Progress progress("reading " + path);
  Checksum checksum;
  std::string part;
  for (uint64_t at = 0; at < source.size; at += part.size()) {
    part.resize(std::min<uint64_t>(kPartBytes, source.size - at));
    source.read(at, part.data(), part.size());
    checksum.add(part.data(), part.size());
  }
  return checksum.text();
}

}  // namespace

std::vector<DataFile> data_files(const std::vector<CorpusSpec>& specs,
                                 const std::vector<DataFile>& known) {
  return data_files(files_of(specs), known);
}

std::vector<DataFile> data_files(const std::vector<std::string>& paths,
                                 const std::vector<DataFile>& known) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) {
    DataFile file{.path = path};
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) file.bytes = status.st_size;
    const bool large = file.bytes > kAlwaysRead;
    if (large) file.changed = kNanoseconds * status.st_mtim.tv_sec + status.st_mtim.tv_nsec;
    const DataFile before = files.size() < known.size() ? known[files.size()] : DataFile();
    const bool trusted = large && before.bytes == file.bytes && before.changed == file.changed;
    file.checksum = trusted ? before.checksum : checksum_of_file(path);
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<std::string> changed_files(const std::vector<DataFile>& before,
                                       const std::vector<DataFile>& now) {
  std::vector<std::string> changed;
  if (before.empty()) return changed;
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    const bool same = i < before.size() && i < now.size() && before[i].checksum == now[i].checksum;
    if (!same) changed.push_back(i < now.size() ? now[i].path : "the data");
  }
  return changed;
}

}  // namespace tapestry
