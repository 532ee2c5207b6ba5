#include "data/corpora/token_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "data/corpora/table_facts.h"
#include "data/files/atomic_file.h"
#include "data/files/mapped_file.h"

namespace tapestry {
namespace {

constexpr char kMagic[8] = {'T', 'A', 'P', 'T', 'A', 'B', 'L', 'E'};
constexpr int64_t kAlignment = 64;
constexpr int64_t kHashedBytes = int64_t{4} << 20;
constexpr size_t kReadBytes = size_t{1} << 18;
constexpr size_t kBufferedIds = size_t{1} << 20;
constexpr int64_t kMostOfAnything = int64_t{1} << 48;

struct Header {
  char magic[8];
  uint64_t key;  // also of the version of the format
  int64_t columns;
  int64_t rows;
  int64_t ids;
  int64_t facts_bytes;
  uint64_t sums_checksum;    // of the checksums of the blocks
  uint64_t header_checksum;  // of the members before
};
static_assert(sizeof(Header) == kAlignment);

uint64_t checksum_of(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_checksum));
}

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Offsets of the parts of a file.
struct Layout {
  explicit Layout(const Header& header)
      : offsets(aligned(kAlignment + header.ids * static_cast<int64_t>(sizeof(int32_t)))),
        facts(offsets + (header.rows * header.columns + 1) * static_cast<int64_t>(sizeof(int64_t))),
        end(facts + header.facts_bytes),
        blocks((end - kAlignment + kHashedBytes - 1) / kHashedBytes) {}

  int64_t offsets, facts, end;  // the checksums stand behind the end
  int64_t blocks;
  int64_t file_bytes() const { return end + blocks * static_cast<int64_t>(sizeof(uint64_t)); }
};

bool read_at(int file, int64_t at, void* out, size_t bytes) {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t count = ::pread(file, to, bytes, at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    to += count;
    at += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

// The checksums of the blocks between header and end, on all threads; nothing if a byte cannot be
// read.
std::optional<std::vector<uint64_t>> sums_of(int file, const Layout& layout) {
  std::vector<uint64_t> sums(static_cast<size_t>(layout.blocks));
  std::atomic<bool> whole{true};
  parallel_for(layout.blocks, [&](int64_t block) {
    const int64_t begin = kAlignment + block * kHashedBytes;
    const int64_t end = std::min(begin + kHashedBytes, layout.end);
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                         XXH3_freeState);
    XXH3_64bits_reset(state.get());
    std::vector<char> buffer(kReadBytes);
    for (int64_t at = begin; at < end;) {
      const size_t count = std::min(buffer.size(), static_cast<size_t>(end - at));
      if (!read_at(file, at, buffer.data(), count)) return whole.store(false);
      XXH3_64bits_update(state.get(), buffer.data(), count);
      at += static_cast<int64_t>(count);
    }
    sums[static_cast<size_t>(block)] = XXH3_64bits_digest(state.get());
  });
  if (!whole) return std::nullopt;
  return sums;
}

uint64_t checksum_of(const std::vector<uint64_t>& sums) {
  return XXH3_64bits(sums.data(), sums.size() * sizeof(uint64_t));
}

// A descriptor that closes itself.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      // O_NONBLOCK: does not wait for a writer if it is a pipe.
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }
  // -1: no regular file.
  int64_t size() const {
    struct stat status {};
    return descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)
               ? status.st_size
               : -1;
  }

 private:
  int descriptor_;
};

bool is_possible(const Header& header, uint64_t key, int64_t columns) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.key != key ||
      header.columns != columns || header.header_checksum != checksum_of(header)) {
    return false;
  }
  for (const int64_t count : {header.rows, header.ids, header.facts_bytes}) {
    if (count < 0 || count > kMostOfAnything) return false;
  }
  return true;
}

// True if they ascend from 0 to the number of ids.
bool are_offsets(const int64_t* offsets, const Header& header) {
  constexpr int64_t kGrain = int64_t{1} << 18;
  const int64_t last = header.rows * header.columns;
  if (offsets[0] != 0 || offsets[last] != header.ids) return false;
  std::atomic<bool> ascend{true};
  parallel_ranges(last, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (offsets[i + 1] < offsets[i]) return ascend.store(false);
    }
  });
  return ascend;
}

}  // namespace

std::shared_ptr<const TokenTable> TokenTable::open(const std::string& path, uint64_t key,
                                                   int64_t columns) {
  const OpenFile file(path);
  Header header;
  if (file.size() < kAlignment || !read_at(file.descriptor(), 0, &header, sizeof(header)) ||
      !is_possible(header, key, columns)) {
    return nullptr;
  }
  const Layout layout(header);
  if (file.size() != layout.file_bytes()) return nullptr;
  std::vector<uint64_t> kept(static_cast<size_t>(layout.blocks));
  if (!read_at(file.descriptor(), layout.end, kept.data(), kept.size() * sizeof(uint64_t)) ||
      checksum_of(kept) != header.sums_checksum || sums_of(file.descriptor(), layout) != kept) {
    return nullptr;
  }
  std::string facts(static_cast<size_t>(header.facts_bytes), '\0');
  const auto mapping = std::make_shared<const MappedFile>(file.descriptor(), file.size(), path);
  if (mapping->data() == nullptr ||
      !read_at(file.descriptor(), layout.facts, facts.data(), facts.size())) {
    return nullptr;
  }
  auto table = std::make_shared<TokenTable>();
  FactsReader reader{facts};
  visit(table->facts_, reader);
  if (reader.broken || !reader.rest.empty()) return nullptr;
  table->ids_ = reinterpret_cast<const int32_t*>(mapping->data() + kAlignment);
  table->offsets_ = reinterpret_cast<const int64_t*>(mapping->data() + layout.offsets);
  if (!are_offsets(table->offsets_, header)) return nullptr;
  table->owner_ = table->mapping_ = mapping;
  table->rows_ = header.rows;
  table->columns_ = columns;
  table->from_cache_ = true;
  return table;
}

bool TokenTable::ids_are_below(int64_t column, int64_t limit) const {
  constexpr int64_t kGrain = int64_t{1} << 14;
  constexpr size_t kPart = size_t{1} << 20;
  std::atomic<bool> below{true};
  parallel_ranges(rows_, kGrain, [&](int64_t begin, int64_t end) {
    const int32_t* kept = list(begin, column).data();  // pages from here on are in memory
    for (int64_t row = begin; row < end && below; ++row) {
      for (std::span<const int32_t> rest = list(row, column); !rest.empty();) {
        const std::span<const int32_t> part = rest.first(std::min(rest.size(), kPart));
        bool all = true;
        for (const int32_t id : part) all &= id >= 0 && id < limit;
        if (!all) return below.store(false);
        rest = rest.subspan(part.size());
        if (mapping_ == nullptr || static_cast<size_t>(rest.data() - kept) < kPart) continue;
        mapping_->release(kept, rest.data());
        kept = rest.data();
      }
    }
  });
  return below;
}

struct TableBuilder::File {
  File(const std::string& path, uint64_t the_key)
      : path(path), key(the_key), ids(path), offsets(path) {
    const std::array<char, kAlignment> zeros{};
    ids.write(zeros.data(), zeros.size());  // the header comes last
  }

  std::string path;
  uint64_t key;
  AtomicFile ids;      // becomes the file
  AtomicFile offsets;  // is appended to it
};

// Apart, since a file gets both in parts.
struct TableBuilder::Checksum {
  using State = std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)>;

  Checksum() {
    XXH3_64bits_reset(ids.get());
    XXH3_64bits_reset(offsets.get());
  }
  void add(const std::vector<int32_t>& more_ids, const std::vector<int64_t>& more_offsets) {
    XXH3_64bits_update(ids.get(), more_ids.data(), more_ids.size() * sizeof(int32_t));
    XXH3_64bits_update(offsets.get(), more_offsets.data(), more_offsets.size() * sizeof(int64_t));
  }
  int64_t value() const {
    const uint64_t both[] = {XXH3_64bits_digest(ids.get()), XXH3_64bits_digest(offsets.get())};
    return static_cast<int64_t>(XXH3_64bits(both, sizeof both));
  }

  State ids{XXH3_createState(), XXH3_freeState}, offsets{XXH3_createState(), XXH3_freeState};
};

TableBuilder::TableBuilder(int64_t columns)
    : columns_(columns), offsets_{0}, checksum_(std::make_unique<Checksum>()) {}

TableBuilder::TableBuilder(int64_t columns, const std::string& path, uint64_t key)
    : columns_(columns),
      offsets_{0},
      file_(std::make_unique<File>(path, key)),
      checksum_(std::make_unique<Checksum>()) {}

TableBuilder::~TableBuilder() = default;

void TableBuilder::add(std::initializer_list<std::span<const int32_t>> row) {
  check(std::ssize(row) == columns_, "data", "a row must have ", columns_, " lists, got ",
        row.size(), '.');
  for (const std::span<const int32_t> list : row) {
    ids_.insert(ids_.end(), list.begin(), list.end());
    all_ids_ += std::ssize(list);
    offsets_.push_back(all_ids_);
  }
  ++rows_;
  if (file_ != nullptr && ids_.size() + offsets_.size() >= kBufferedIds) flush();
}

void TableBuilder::flush() {
  checksum_->add(ids_, offsets_);
  file_->ids.write(ids_.data(), ids_.size() * sizeof(int32_t));
  file_->offsets.write(offsets_.data(), offsets_.size() * sizeof(int64_t));
  ids_.clear();
  offsets_.clear();
}

std::shared_ptr<const TokenTable> TableBuilder::finish(CorpusFacts facts) {
  if (file_ == nullptr) {
    checksum_->add(ids_, offsets_);
    facts.checksum = checksum_->value();
    struct Owner {
      std::vector<int32_t> ids;
      std::vector<int64_t> offsets;
    };
    const auto owner = std::make_shared<const Owner>(Owner{std::move(ids_), std::move(offsets_)});
    auto table = std::make_shared<TokenTable>();
    table->ids_ = owner->ids.data();
    table->offsets_ = owner->offsets.data();
    table->owner_ = owner;
    table->rows_ = rows_;
    table->columns_ = columns_;
    table->facts_ = std::move(facts);
    return table;
  }
  flush();
  facts.checksum = checksum_->value();
  FactsWriter writer;
  visit(facts, writer);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key = file_->key;
  header.columns = columns_;
  header.rows = rows_;
  header.ids = all_ids_;
  header.facts_bytes = std::ssize(writer.bytes);
  const Layout layout(header);
  AtomicFile& file = file_->ids;
  const std::array<char, kAlignment> zeros{};
  file.write(zeros.data(), static_cast<size_t>(layout.offsets - file.size()));
  file.append(file_->offsets);
  file.write(writer.bytes.data(), writer.bytes.size());
  const auto sums = sums_of(file.descriptor(), layout);
  if (!sums) throw WriteFailure(concat(file_->path, " cannot be read back"));
  file.write(sums->data(), sums->size() * sizeof(uint64_t));
  header.sums_checksum = checksum_of(*sums);
  header.header_checksum = checksum_of(header);
  file.write_at(0, &header, sizeof(header));
  file.commit();
  const auto table =
      std::const_pointer_cast<TokenTable>(TokenTable::open(file_->path, file_->key, columns_));
  if (table == nullptr) throw WriteFailure(concat(file_->path, " cannot be read back"));
  table->from_cache_ = false;
  return table;
}

std::vector<int32_t> ids_of_text(std::string_view text) {
  // The last byte is the number of padding bytes, 1 to 4.
  std::vector<int32_t> ids(text.size() / sizeof(int32_t) + 1);
  char* const bytes = reinterpret_cast<char*>(ids.data());
  std::memcpy(bytes, text.data(), text.size());
  const size_t all = ids.size() * sizeof(int32_t);
  bytes[all - 1] = static_cast<char>(all - text.size());
  return ids;
}

std::string_view text_of_ids(std::span<const int32_t> ids) {
  const char* const bytes = reinterpret_cast<const char*>(ids.data());
  const size_t all = ids.size_bytes();
  const size_t rest = all == 0 ? 0 : static_cast<unsigned char>(bytes[all - 1]);
  return {bytes, all - std::min(rest, all)};  // a file may hold anything
}

}  // namespace tapestry
