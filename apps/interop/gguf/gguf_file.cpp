#include "apps/interop/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/gguf/gguf_cursor.h"
#include "core/base/error.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint64_t kMaxSize = uint64_t{1} << 62;

}  // namespace

GgufFile::GgufFile(ByteSource file) : file_(std::move(file)) {
  static_assert(std::endian::native == std::endian::little);
  GgufCursor at(file_, 0);
  if (at.number<uint32_t>("the header") != kGgufMagic) {
    broken_gguf(file_.name, "it does not begin with GGUF");
  }
  const auto version = at.number<uint32_t>("the header");
  if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3)) {
    broken_gguf(file_.name, "it is big endian, Tapestry reads little endian files");
  }
  if (version != 2 && version != 3) {
    broken_gguf(file_.name, "it has version ", version, ", Tapestry reads 2 and 3");
  }
  const auto tensors = at.number<uint64_t>("the header"), pairs = at.number<uint64_t>("the header");
  read_pairs(at, pairs);
  if (const auto alignment = integer("general.alignment")) {
    if (*alignment < 1 || static_cast<uint64_t>(*alignment) > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
      broken_gguf(file_.name, "general.alignment is ", *alignment,
                  ", expected a power of two up to ", kMaxAlignment);
    }
    alignment_ = static_cast<uint64_t>(*alignment);
  }
  read_tensors(at, tensors);
  place_tensors(at.at());
}

void GgufFile::read_pairs(GgufCursor& at, uint64_t count) {
  constexpr uint64_t kLeastPair = 8 + 1 + 4 + 1;
  if (count > at.left() / kLeastPair) {
    broken_gguf(file_.name, "it claims to have ", count, " pairs of key and value in ", at.left(),
                " bytes");
  }
  const auto type_of = [&](uint32_t number, const std::string& key) {
    if (number >= std::size(kGgufValues)) {
      broken_gguf(file_.name, key, " has the unknown type of value ", number);
    }
    return static_cast<GgufValueType>(number);
  };
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = at.name(concat("key ", i + 1, " of ", count));
    Value value{.type = type_of(at.number<uint32_t>(key), key), .element = GgufValueType::kUint8};
    if (value.type == GgufValueType::kList) {
      value.element = type_of(at.number<uint32_t>(key), key);
      value.count = at.number<uint64_t>(key);
      if (value.element == GgufValueType::kList) {
        broken_gguf(file_.name, key, " is an array of arrays, which Tapestry does not read");
      }
      const uint64_t least = row_of(value.element).bytes;
      if (value.count > at.left() / least) {
        broken_gguf(file_.name, key, " claims to have ", value.count, " elements, the file has ",
                    at.left(), " bytes left");
      }
      value.begin = at.at();
      if (value.element == GgufValueType::kText) {
        for (uint64_t k = 0; k < value.count; ++k) {
          at.skip(at.number<uint64_t>(key), concat("element ", k, " of ", key));
        }
      } else {
        at.skip(value.count * least, key);
      }
    } else if (value.type == GgufValueType::kText) {
      value.count = at.number<uint64_t>(key);
      value.begin = at.at();
      at.skip(value.count, key);
    } else {
      value.begin = at.at();
      at.skip(row_of(value.type).bytes, key);
    }
    if (!values_.emplace(key, value).second)
      broken_gguf(file_.name, "the key ", key, " is there twice");
    keys_.push_back(key);
  }
}

GgufTensor GgufFile::read_tensor(GgufCursor& at) const {
  GgufTensor tensor{at.name("the name of a tensor"), nullptr, {}};
  const std::string what = concat("tensor ", tensor.name);
  const auto rank = at.number<uint32_t>(what);
  if (rank < 1 || rank > Shape::kMaxRank) {
    broken_gguf(file_.name, what, " has ", rank, " axes, expected 1 to ", Shape::kMaxRank);
  }
  std::array<int64_t, Shape::kMaxRank> sizes{};
  uint64_t numbers = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = at.number<uint64_t>(what);
    if (size > kMaxSize || __builtin_mul_overflow(numbers, size, &numbers) || numbers > kMaxSize) {
      broken_gguf(file_.name, what, " has an impossible size ", size);
    }
    sizes[rank - 1 - i] = static_cast<int64_t>(size);
  }
  tensor.shape = Shape(sizes.data(), static_cast<int>(rank));
  const auto type = at.number<uint32_t>(what);
  tensor.type = find_gguf_type(type);
  if (tensor.type == nullptr || tensor.type->read == nullptr) {
    broken_gguf(file_.name, what, " is of type ",
                tensor.type == nullptr ? std::to_string(type) : tensor.type->name,
                ", Tapestry reads ", read_gguf_types());
  }
  if (tensor.shape.cols() % tensor.type->numbers != 0) {
    broken_gguf(file_.name, what, " has rows of ", tensor.shape.cols(), " numbers, ",
                tensor.type->name, " has blocks of ", tensor.type->numbers);
  }
  tensor.begin = at.number<uint64_t>(what);
  return tensor;
}

void GgufFile::read_tensors(GgufCursor& at, uint64_t count) {
  constexpr uint64_t kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;
  if (count > at.left() / kLeastTensor) {
    broken_gguf(file_.name, "it claims to have ", count, " tensors in ", at.left(), " bytes");
  }
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor = read_tensor(at);
    if (!index_.emplace(tensor.name, tensors_.size()).second) {
      broken_gguf(file_.name, "tensor ", tensor.name, " is there twice");
    }
    tensors_.push_back(std::move(tensor));
  }
}

// The data of each tensor begins where that of the one before it ends, padded.
void GgufFile::place_tensors(uint64_t header_end) {
  const auto aligned = [&](uint64_t at) { return (at + alignment_ - 1) / alignment_ * alignment_; };
  const uint64_t data = aligned(header_end);
  const uint64_t available = file_.size > data ? file_.size - data : 0;
  uint64_t expected = 0, end = 0;
  for (GgufTensor& tensor : tensors_) {
    if (tensor.begin != expected) {
      broken_gguf(file_.name, "tensor ", tensor.name, " begins at ", tensor.begin,
                  " of the data, expected ", expected,
                  ": tensors must follow each other, each at a multiple of ", alignment_);
    }
    const uint64_t blocks = static_cast<uint64_t>(tensor.shape.numel() / tensor.type->numbers);
    if (expected > available || blocks > (available - expected) / tensor.type->bytes) {
      broken_gguf(file_.name, "tensor ", tensor.name, ' ', tensor.type->name, ' ', tensor.shape,
                  " begins at ", expected, " of the data and ends beyond it: the data has ",
                  available, " bytes");
    }
    end = expected + blocks * tensor.type->bytes;
    expected = aligned(end);
    tensor.begin += data;
  }
  // Some programs pad the last one, too.
  if (available > expected) {
    broken_gguf(file_.name, "the tensors take ", end, " bytes, the file holds ", available);
  }
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Tensor GgufFile::read(const GgufTensor& tensor) const {
  const Tensor values = Tensor::empty(tensor.shape, DType::kFloat32);
  read_blocks(tensor, 0, values);
  return values;
}

Tensor GgufFile::read_rows(const GgufTensor& tensor, int64_t first, int64_t count) const {
  const Tensor values = Tensor::empty(tensor.shape.with(0, count), DType::kFloat32);
  read_blocks(tensor, first * tensor.shape[1] / tensor.type->numbers, values);
  return values;
}

// Blocks first, first + 1, ..., as many as there are values.
void GgufFile::read_blocks(const GgufTensor& tensor, int64_t first, const Tensor& values) const {
  const GgufType& type = *tensor.type;
  auto* to = values.data<float>();
  const int64_t blocks = values.numel() / type.numbers;
  const int64_t step = kPartBytes / static_cast<int64_t>(type.bytes);
  std::vector<unsigned char> part;
  for (int64_t begin = 0; begin < blocks; begin += step) {
    const auto count = static_cast<uint64_t>(std::min(step, blocks - begin));
    part.resize(count * type.bytes);
    file_.read(tensor.begin + static_cast<uint64_t>(first + begin) * type.bytes, part.data(),
               part.size());
    for (uint64_t i = 0; i < count; ++i, to += type.numbers) {
      type.read(part.data() + i * type.bytes, to);
    }
  }
}

std::optional<std::string> gguf_file_of(const std::string& path) {
  const auto begins_as_one = [](const std::string& file) {
    char begin[4] = {};
    std::ifstream(file, std::ios::binary).read(begin, sizeof begin);
    return std::string_view(begin, sizeof begin) == "GGUF";
  };
  if (fs::is_regular_file(path)) {
    return begins_as_one(path) ? std::optional(path) : std::nullopt;
  }
  if (!fs::is_directory(path) || fs::exists(path + "/" + kConfigFile)) return std::nullopt;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file() && entry.path().extension() == ".gguf") {
      found.push_back(entry.path().string());
    }
  }
  if (found.size() > 1) {
    std::ranges::sort(found);
    fail(ErrorKind::kData, "[gguf] ", path, " has several .gguf files, ", found[0], " and ",
         found[1], " among them: name one.");
  }
  return found.empty() ? std::nullopt : std::optional(found[0]);
}

}  // namespace tapestry::interop
