#include "data/token_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "core/error.h"

namespace tapestry {
namespace {

constexpr char kMagic[8] = {'T', 'A', 'P', 'T', 'O', 'K', 'E', 'N'};
// Raise it also when the rules that turn text into ids change.
constexpr uint64_t kVersion = 1;
constexpr int64_t kAlignment = 64;

struct Header {
  char magic[8];
  uint64_t version;
  uint64_t key;
  int64_t tokens;
  int64_t facts_bytes;
  uint64_t facts_checksum;
  uint64_t ids_checksum;
  uint64_t header_checksum;  // of the members before
};
static_assert(sizeof(Header) == 64);

uint64_t checksum(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }
uint64_t checksum_of(const Header& header) {
  return checksum(&header, offsetof(Header, header_checksum));
}

int64_t ids_offset(int64_t facts_bytes) {
  const auto end = static_cast<int64_t>(sizeof(Header)) + facts_bytes;
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

[[noreturn]] void fail_file(const std::string& path, const char* what) {
  fail(ErrorKind::kData, "[data] ", path, ' ', what, ": ", std::strerror(errno), '.');
}

// Writes numbers, and texts with their lengths.
struct FactsWriter {
  std::string bytes;

  void operator()(int64_t& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void operator()(std::string& text) {
    auto size = static_cast<int64_t>(text.size());
    (*this)(size);
    bytes += text;
  }
};

// Reads what FactsWriter wrote. It trusts the bytes because their checksum was verified.
struct FactsReader {
  const char* at;

  void operator()(int64_t& value) {
    std::memcpy(&value, at, sizeof(value));
    at += sizeof(value);
  }
  void operator()(std::string& text) {
    int64_t size = 0;
    (*this)(size);
    text.assign(at, static_cast<size_t>(size));
    at += size;
  }
};

template <class Visitor>
void visit(StreamFacts& facts, Visitor& visitor) {
  FilterCounts& counts = facts.counts;
  for (int64_t* const value : {&facts.characters, &facts.documents, &counts.read, &counts.kept,
                               &counts.truncated, &counts.other_split}) {
    visitor(*value);
  }
  for (int64_t& value : counts.dropped) visitor(value);
  for (std::string& place : counts.first) visitor(place);
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  // The length comes first, so that different lists of texts give different bytes.
  void add(const std::string& text) {
    const uint64_t size = text.size();
    XXH3_64bits_update(state_, &size, sizeof(size));
    XXH3_64bits_update(state_, text.data(), text.size());
  }
  void add_file(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open()) fail_file(path, "cannot be opened");
    std::string buffer(size_t{1} << 20, '\0');
    uint64_t size = 0;
    while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())),
           file.gcount() > 0) {
      const auto count = static_cast<size_t>(file.gcount());
      XXH3_64bits_update(state_, buffer.data(), count);
      size += count;
    }
    XXH3_64bits_update(state_, &size, sizeof(size));
  }
  uint64_t value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

void add_spec(Hash& hash, const CorpusSpec& spec) {
  // Binds all members: if one is added, this does not compile until it is part of the key.
  const auto& [source, target, tsv, csv, jsonl, header, source_column, target_column, text_column,
               label_column, context_column, question_column, answer_column, answer_start_column,
               x_column, y_column, prompt, answer, ding, direction, text, documents, images, labels,
               squad, range_begin, range_end, split, limit] = spec;
  hash.add(concat(direction, ' ', documents, ' ', std::setprecision(17), range_begin, ' ',
                  range_end, ' ', split, ' ', limit));
  for (const std::string* name : {&header, &source_column, &target_column, &text_column,
                                  &label_column, &context_column, &question_column, &answer_column,
                                  &answer_start_column, &x_column, &y_column, &prompt, &answer}) {
    hash.add(*name);
  }
  for (const std::string* path :
       {&source, &target, &tsv, &ding, &text, &images, &labels, &jsonl, &squad, &csv}) {
    hash.add(*path);  // part of the key because the counts contain it
    if (!path->empty()) hash.add_file(*path);
  }
}

// A file mapped read-only, closed with the last reference.
class Mapping {
 public:
  // Maps nothing if the file is missing or empty.
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      void* const data =
          ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
      if (data != MAP_FAILED) {
        data_ = static_cast<const char*>(data);
        size_ = status.st_size;
      }
    }
    ::close(file);
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), static_cast<size_t>(size_));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const char* data_ = nullptr;
  int64_t size_ = 0;
};

// A file that gets its name only when it is complete and on disk.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path)
      : path_(std::move(path)), temporary_(concat(path_, ".tmp-", ::getpid())) {
    const auto folder = std::filesystem::path(path_).parent_path();
    std::error_code ignored;  // open() will report the reason
    if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
    remove_left_overs();
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) fail_file(temporary_, "cannot be created");
  }
  ~AtomicFile() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(temporary_.c_str());
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t count = ::write(file_, at, bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_file(temporary_, "cannot be written");
      at += count;
      bytes -= static_cast<size_t>(count);
    }
  }
  void commit() {
    if (::fsync(file_) != 0) fail_file(temporary_, "cannot be written");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_file(path_, "cannot be created");
    ::close(file_);
    file_ = -1;
  }

 private:
  // What processes that were killed left of their writing.
  void remove_left_overs() const {
    namespace fs = std::filesystem;
    const fs::path path(path_);
    const std::string prefix = path.filename().string() + ".tmp-";
    std::error_code ignored;
    for (const auto& entry :
         fs::directory_iterator(path.has_parent_path() ? path.parent_path() : ".", ignored)) {
      if (entry.path().filename().string().starts_with(prefix)) fs::remove(entry.path(), ignored);
    }
  }

  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

}  // namespace

TokenCache::TokenCache(std::string path, const std::vector<CorpusSpec>& specs,
                       const Tokenizer& tokenizer)
    : path_(std::move(path)) {
  Hash hash;
  hash.add(tokenizer.serialized());
  for (const CorpusSpec& spec : specs) add_spec(hash, spec);
  key_ = hash.value();
}

std::optional<TokenStream> TokenCache::load() const {
  const auto mapping = std::make_shared<const Mapping>(path_);
  constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(Header));
  if (mapping->size() < kHeaderBytes) return std::nullopt;
  Header header;
  std::memcpy(&header, mapping->data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion ||
      header.key != key_ || header.header_checksum != checksum_of(header)) {
    return std::nullopt;
  }
  const int64_t offset = ids_offset(header.facts_bytes);
  const auto ids_bytes = static_cast<size_t>(header.tokens) * sizeof(int32_t);
  if (mapping->size() != offset + static_cast<int64_t>(ids_bytes)) return std::nullopt;
  const char* const facts = mapping->data() + kHeaderBytes;
  const char* const ids = mapping->data() + offset;
  if (checksum(facts, static_cast<size_t>(header.facts_bytes)) != header.facts_checksum ||
      checksum(ids, ids_bytes) != header.ids_checksum) {
    return std::nullopt;
  }
  TokenStream stream;
  FactsReader reader{facts};
  visit(stream.facts_, reader);
  stream.tokens_ = {reinterpret_cast<const int32_t*>(ids), static_cast<size_t>(header.tokens)};
  stream.owner_ = mapping;
  stream.from_cache_ = true;
  return stream;
}

TokenStream TokenCache::store(const TokenStream& stream) const {
  StreamFacts facts = stream.facts_;
  FactsWriter writer;
  visit(facts, writer);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.key = key_;
  header.tokens = stream.size();
  header.facts_bytes = static_cast<int64_t>(writer.bytes.size());
  header.facts_checksum = checksum(writer.bytes.data(), writer.bytes.size());
  header.ids_checksum = checksum(stream.tokens().data(), stream.tokens().size_bytes());
  header.header_checksum = checksum_of(header);
  writer.bytes.resize(static_cast<size_t>(ids_offset(header.facts_bytes)) - sizeof(header));

  AtomicFile file(path_);
  file.write(&header, sizeof(header));
  file.write(writer.bytes.data(), writer.bytes.size());
  file.write(stream.tokens().data(), stream.tokens().size_bytes());
  file.commit();
  auto mapped = load();
  if (!mapped) {
    fail(ErrorKind::kData, "[data] ", path_, " cannot be read back as it was written.");
  }
  mapped->from_cache_ = false;
  return *std::move(mapped);
}

}  // namespace tapestry
