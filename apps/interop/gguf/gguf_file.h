// A GGUF file as it is read: pairs of key and value, then tensors. Versions 2 and 3, little endian.
//
//     "GGUF"  u32 version  u64 tensors  u64 pairs
//     pair    text key, u32 type, value; a text is u64 bytes and the bytes,
//             a list is u32 type of its elements, u64 elements and these
//     tensor  text name, u32 rank, u64 sizes (the innermost first), u32 type, u64 offset
//     padding to general.alignment (32), then the data of the tensors, each padded in the same way
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/bytes.h"
#include "apps/interop/gguf/gguf_types.h"
#include "core/tensor.h"

namespace tapestry::interop {

inline constexpr uint32_t kGgufMagic = 0x46554747;  ///< "GGUF"
inline constexpr uint64_t kGgufAlignment = 32;      ///< unless general.alignment says otherwise

enum class GgufValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kText,
  kList,
  kUint64,
  kInt64,
  kFloat64
};

class GgufCursor;

struct GgufTensor {
  std::string name;
  const GgufType* type;
  Shape shape;         ///< as ours: the outermost first
  uint64_t begin = 0;  ///< in the file
};

/// Construction reads everything in front of the data, and keeps the places of the values: long
/// lists are read when they are asked for. Copies share the open file.
class GgufFile {
 public:
  /// Checks all counts and sizes against the file before it reads or keeps anything. Throws one
  /// Error(kData) that names the file and what is wrong, also for tensors of a type that Tapestry
  /// does not read.
  explicit GgufFile(ByteSource file);

  const std::string& name() const { return file_.name; }
  const std::vector<std::string>& keys() const { return keys_; }  ///< in the order of the file
  bool has(const std::string& key) const { return values_.contains(key); }
  bool is_text(const std::string& key) const;
  bool is_integer(const std::string& key) const;
  bool is_texts(const std::string& key) const;  ///< a list of them

  /// Unset where there is no such key. Throw Error(kData) naming the key if it has another type, or
  /// a text that is not UTF-8.
  std::optional<int64_t> integer(const std::string& key) const;  ///< of any width
  std::optional<double> real(const std::string& key) const;      ///< shortest decimal of a float32
  std::optional<bool> flag(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::optional<std::vector<std::string>> texts(const std::string& key) const;
  std::optional<std::vector<float>> reals(const std::string& key) const;
  std::optional<std::vector<int32_t>> integers(const std::string& key) const;
  /// The value for a message: "llama", 8, a list of 12.
  std::string shown(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const GgufTensor* find(const std::string& name) const;
  /// The numbers of a tensor, a part at a time.
  Tensor read(const GgufTensor& tensor) const;
  /// The same of some rows of a matrix, whose rows are whole blocks.
  Tensor read_rows(const GgufTensor& tensor, int64_t first, int64_t count) const;

 private:
  struct Value {
    GgufValueType type;
    GgufValueType element;  ///< of a list
    uint64_t count = 1;     ///< of its elements, or bytes of a text
    uint64_t begin = 0;     ///< of the first element, or of the text
  };

  void read_blocks(const GgufTensor& tensor, int64_t first, const Tensor& values) const;
  void read_pairs(GgufCursor& at, uint64_t count);
  void read_tensors(GgufCursor& at, uint64_t count);
  GgufTensor read_tensor(GgufCursor& at) const;
  void place_tensors(uint64_t header_end);
  const Value* value(const std::string& key) const;
  const Value* list(const std::string& key, GgufValueType element, const char* expected) const;
  int64_t integer_of(const std::string& key, const Value& value) const;
  [[noreturn]] void refuse_type(const std::string& key, const char* expected) const;

  ByteSource file_;
  uint64_t alignment_ = kGgufAlignment;
  std::vector<std::string> keys_;
  std::map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> index_;
};

/// The GGUF file that a path means: the file itself, if it begins as one, or the only file of a
/// folder whose name ends in .gguf, if that folder has no config.json. Unset otherwise. Throws
/// Error(kData) for a folder with several.
std::optional<std::string> gguf_file_of(const std::string& path);

}  // namespace tapestry::interop
