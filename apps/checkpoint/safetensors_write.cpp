#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/made_file.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/checkpoint/safetensors_parts.h"
#include "data/files/little_endian.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kAlignment = 64;

void write_tensor(const TensorToWrite& entry, const ByteSink& sink) {
  const Tensor tensor = entry.content();
  check(tensor.shape() == entry.shape, "safetensors", "'", entry.name, "' is ", tensor.shape(),
        ", its header says ", entry.shape, '.');
  if (as_dtype(entry.stored) == tensor.dtype() && tensor.device().is_cpu()) {
    return sink(tensor.raw(), static_cast<size_t>(tensor.bytes()));
  }
  for_parts(tensor, bytes_of(entry.stored), [&](const Tensor& part, uint64_t) {
    const std::string bytes = elements_as(entry.stored, part);
    sink(bytes.data(), bytes.size());
  });
}

// The length of the header, and the header.
std::string header_of(const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  std::map<std::string, std::string> all = metadata;
  for (const TensorToWrite& tensor : tensors) {
    if (!tensor.frozen.empty()) all[concat(kFrozenPrefix, tensor.name)] = tensor.frozen;
  }
  if (!all.empty()) header["__metadata__"] = all;
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    check(!header.contains(tensor.name), "safetensors", "'", tensor.name, "' is written twice.");
    Json shape = Json::array();
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
    const uint64_t end = offset + tensor.bytes();
    header[tensor.name] = {{"dtype", code_of(tensor.stored)},
                           {"shape", std::move(shape)},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  std::string header_bytes;
  append_little_endian(header_bytes, static_cast<uint64_t>(text.size()));
  return header_bytes + text;
}

constexpr uint64_t kHeldBytes = 16 * kPartBytes;

// A file that is made while it is read.
struct MadeFile {
  std::vector<TensorToWrite> tensors;
  std::vector<uint64_t> begins;  // of their bytes
  std::string header;
  uint64_t begin = 0;  // of `bytes`: those of a tensor, or of some of its rows
  std::string bytes;

  // Has `bytes` hold those at an offset behind the header.
  void hold(uint64_t offset) {
    if (offset >= begin && offset - begin < bytes.size()) return;
    const auto next = std::upper_bound(begins.begin(), begins.end(), offset);
    const auto index = static_cast<size_t>(next - begins.begin()) - 1;
    const TensorToWrite& tensor = tensors[index];
    const Shape& shape = tensor.shape;
    begin = begins[index];
    bytes.clear();
    const auto append = [&](const void* more, size_t n) {
      bytes.append(static_cast<const char*>(more), n);
    };
    if (!tensor.rows) return write_tensor(tensor, append);
    const uint64_t row_bytes = tensor.bytes() / static_cast<uint64_t>(shape[0]);
    const auto step = std::max<uint64_t>(1, kHeldBytes / row_bytes);
    const auto first = static_cast<int64_t>((offset - begin) / row_bytes / step * step);
    const int64_t count = std::min(static_cast<int64_t>(step), shape[0] - first);
    begin += static_cast<uint64_t>(first) * row_bytes;
    TensorToWrite part = tensor;
    part.shape = shape.with(0, count);
    part.content = [&] { return tensor.rows(first, count); };
    write_tensor(part, append);
  }
};

}  // namespace

void write_safetensors(const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata, const ByteSink& sink) {
  const std::string header = header_of(tensors, metadata);
  sink(header.data(), header.size());
  for (const TensorToWrite& tensor : tensors) write_tensor(tensor, sink);
}

ByteSource safetensors_source(std::vector<TensorToWrite> tensors, const std::string& name) {
  const auto file = std::make_shared<MadeFile>();
  file->header = header_of(tensors, {});
  uint64_t size = file->header.size();
  for (const TensorToWrite& tensor : tensors) {
    file->begins.push_back(size);
    size += tensor.bytes();
  }
  file->tensors = std::move(tensors);
  const auto read = [file, name, size](uint64_t offset, void* to, uint64_t count) {
    if (offset > size || count > size - offset) {
      broken_safetensors(name, "the file ends while it is read.");
    }
    for (auto* at = static_cast<char*>(to); count > 0;) {
      const std::string* part = &file->header;
      uint64_t begin = 0;
      if (offset >= part->size()) {
        file->hold(offset);
        begin = file->begin;
        part = &file->bytes;
      }
      const uint64_t n = std::min(count, begin + part->size() - offset);
      std::memcpy(at, part->data() + (offset - begin), n);
      at += n, offset += n, count -= n;
    }
  };
  return {name, size, read};
}

}  // namespace tapestry
