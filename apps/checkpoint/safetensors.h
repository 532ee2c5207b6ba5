// The safetensors format: a JSON header with dtype, shape and place of each tensor, then the bytes.
// Tensors go between files and their own memory; no file is ever in memory as a whole.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/checkpoint/bytes.h"
#include "apps/checkpoint/stored_type.h"
#include "core/kernels/frozen/frozen_matrix.h"
#include "core/tensor.h"

namespace tapestry {

/// A tensor to write, on any device. To be written as another type it must be floating.
struct TensorToWrite {
  TensorToWrite(std::string name, const Tensor& tensor)
      : TensorToWrite(std::move(name), tensor.shape(), tensor.dtype(),
                      [tensor] { return tensor; }) {}
  TensorToWrite(std::string name, const Shape& shape, DType dtype, std::function<Tensor()> content)
      : name(std::move(name)),
        shape(shape),
        dtype(dtype),
        stored(stored_as(dtype)),
        content(std::move(content)) {}
  /// Its words, with its format and columns in the file's metadata: a TensorReader gives numbers.
  TensorToWrite(std::string name, const FrozenMatrix& matrix)
      : TensorToWrite(std::move(name), matrix.words()) {
    frozen = concat(name_of(matrix.format()), ' ', matrix.cols());
  }

  /// Other values of this shape and type, for all readers.
  void replace(std::function<Tensor()> values) {
    content = std::move(values);
    rows = {};
  }
  /// Bytes in the file.
  uint64_t bytes() const { return static_cast<uint64_t>(shape.numel()) * bytes_of(stored); }

  std::string name;
  Shape shape;
  DType dtype;        ///< of the content
  StoredType stored;  ///< in the file
  /// Asked for when its turn comes, and let go after it; changed by replace().
  std::function<Tensor()> content;
  /// Rows [first, first + count) by themselves, where that takes less memory than all; else empty.
  std::function<Tensor(int64_t first, int64_t count)> rows = {};
  std::string frozen = {};  ///< "int4 2048": it holds the words of such a FrozenMatrix
};

/// Writes a safetensors file: the tensors in the given order, their data aligned to 64 bytes.
/// Takes kPartBytes of memory at most for a tensor that is elsewhere or of another type.
/// Throws on a duplicate name, before anything is written.
void write_safetensors(const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata, const ByteSink& sink);

/// Type, shape and place of a tensor in a file.
struct StoredTensor {
  std::string name;
  StoredType type;
  Shape shape;
  size_t file;  ///< of the reader's sources
  uint64_t begin, end;
  /// The format of a FrozenMatrix whose words the file has; then type and shape are those of its
  /// numbers.
  std::optional<WeightFormat> frozen = {};
};

/// The tensors of a file, or of one that is cut into shards. Construction reads the headers; a
/// tensor's bytes are read straight into their place when it is asked for. Copies share the open
/// files.
class TensorReader {
 public:
  TensorReader() = default;  ///< of no tensors
  /// Checks before it reads: header at most 100 MB, offsets contiguous from 0 in file order, shape
  /// product without overflow and equal to the byte count, exact file length, no duplicate keys.
  /// Throws Error(kData).
  explicit TensorReader(const ByteSource& file);
  /// The files that an index (model.safetensors.index.json of Hugging Face) names; `open` opens one
  /// of them by its name. Throws Error(kData) also when a tensor is not where the index says, or in
  /// two files.
  TensorReader(const ByteSource& index,
               const std::function<ByteSource(const std::string& name)>& open);

  /// The name of the file, or of the index.
  const std::string& name() const { return name_; }
  /// All tensors, in the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  bool empty() const { return tensors_.empty(); }
  /// Null when there is none of that name.
  const StoredTensor* find(const std::string& name) const;
  /// Reads a tensor into memory of the same shape on any device, and converts its elements if the
  /// type differs, kPartBytes at a time. Throws Error(kData) when it is not there, has another
  /// shape, does not fit the type, or holds a number that int32 cannot.
  void read(const std::string& name, const Tensor& target) const;
  /// The same of a tensor's rows first, first + 1, ..., as many as the target has.
  void read_rows(const std::string& name, int64_t first, const Tensor& target) const;
  /// Reads a frozen tensor into a matrix of its format and shape, bit by bit.
  void read_words(const std::string& name, const FrozenMatrix& target) const;

  /// True if two tensors hold the same numbers in the same shape.
  bool equal(const std::string& a, const std::string& b) const;

  /// A reader of only the tensors whose name `keep` accepts.
  TensorReader only(const std::function<bool(const std::string& name)>& keep) const;
  /// A reader of the tensors whose name begins with `prefix`, by the rest of their names.
  TensorReader under(const std::string& prefix) const;

 private:
  void add_file(const ByteSource& file);
  // Throws as read(), unless the target has the shape of the tensor or of some of its rows.
  const StoredTensor& expect(const std::string& name, const Tensor& target, bool all_rows) const;
  void read_numbers(const StoredTensor& tensor, int64_t first, const Tensor& target) const;
  void read_frozen(const StoredTensor& tensor, int64_t first, const Tensor& target) const;
  void add(StoredTensor tensor);

  std::string name_;
  std::vector<ByteSource> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
};

/// The tensors of a folder without a manifest: of model.safetensors, or else of the files that
/// model.safetensors.index.json names. Throws Error(kData).
TensorReader open_model_folder(const std::string& folder);

}  // namespace tapestry
