// Checkpoints and safetensors files as bytes in memory, to compare and to damage them. The binary
// never holds them so.
#pragma once

#include <cstring>
#include <map>
#include <string>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/safetensors.h"

namespace tapestry {

/// File name -> bytes.
using CheckpointFiles = std::map<std::string, std::string>;

inline CheckpointFiles files_of(Checkpoint checkpoint) {
  CheckpointFiles files;
  for (const std::string& name : checkpoint.names()) files[name] = checkpoint.read(name);
  return files;
}

/// All files of a checkpoint folder, verified.
inline CheckpointFiles read_checkpoint(const std::string& folder) {
  return files_of(Checkpoint(folder));
}

/// Bytes in memory that stand for a file.
inline ByteSource source_of(const std::string& bytes, const std::string& name) {
  return {name, bytes.size(), [bytes](uint64_t offset, void* to, uint64_t count) {
            check(offset <= bytes.size() && count <= bytes.size() - offset, "test", "read of ",
                  count, " bytes at ", offset, " of ", bytes.size(), '.');
            std::memcpy(to, bytes.data() + offset, count);
          }};
}

/// The tensors of a file in their own types; what Tensor does not have comes as float or int32.
inline NamedTensors tensors_of(const TensorReader& reader) {
  NamedTensors tensors;
  for (const StoredTensor& stored : reader.tensors()) {
    const DType other = fits(stored.type, DType::kInt32) ? DType::kInt32 : DType::kFloat32;
    const Tensor tensor = Tensor::empty(stored.shape, as_dtype(stored.type).value_or(other));
    reader.read(stored.name, tensor);
    tensors.emplace_back(stored.name, tensor);
  }
  return tensors;
}

inline NamedTensors parse_safetensors(const std::string& bytes, const std::string& name) {
  return tensors_of(TensorReader(source_of(bytes, name)));
}

inline std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors,
                                     const std::map<std::string, std::string>& metadata = {}) {
  std::string bytes;
  write_safetensors(tensors, metadata, [&](const void* part, size_t count) {
    bytes.append(static_cast<const char*>(part), count);
  });
  return bytes;
}

}  // namespace tapestry
