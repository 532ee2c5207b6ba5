#include "apps/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kAlignment = 64;

const char* code_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
    case DType::kInt32:
      return "I32";
    case DType::kBFloat16:
      return "BF16";
  }
  return "?";
}

template <class... Parts>
[[noreturn]] void broken(const std::string& name, const Parts&... parts) {
  fail(ErrorKind::kData, "[safetensors] ", name, ": ", parts...);
}

// nlohmann's parser keeps the last of two equal keys; this callback refuses them.
Json parse_header(const std::string& text, const std::string& name) {
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      duplicate = value.get<std::string>();
    }
    return true;
  };
  const Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object())
    broken(name, "the header is not a JSON object.");
  if (!duplicate.empty()) broken(name, "the header names '", duplicate, "' twice.");
  return header;
}

bool is_text_map(const Json& value) {
  return value.is_object() &&
         std::all_of(value.begin(), value.end(), [](const Json& text) { return text.is_string(); });
}

struct Entry {
  std::string key;
  DType dtype;
  Shape shape;
  uint64_t begin, end;
};

Entry parse_entry(const std::string& key, const Json& value, const std::string& name) {
  const bool complete = value.is_object() && value.contains("dtype") &&
                        value["dtype"].is_string() && value.contains("shape") &&
                        value["shape"].is_array() && value.contains("data_offsets") &&
                        value["data_offsets"].is_array() && value["data_offsets"].size() == 2 &&
                        value["data_offsets"][0].is_number_unsigned() &&
                        value["data_offsets"][1].is_number_unsigned();
  if (!complete) broken(name, "'", key, "' needs dtype, shape and two data_offsets.");
  Entry entry{key, DType::kFloat32, {}, value["data_offsets"][0], value["data_offsets"][1]};
  const std::string code = value["dtype"];
  bool known = false;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBFloat16}) {
    if (code != code_of(dtype)) continue;
    entry.dtype = dtype;
    known = true;
  }
  if (!known)
    broken(name, "'", key, "' has dtype ", code, "; F32, F64, I32 and BF16 are supported.");
  if (value["shape"].size() > Shape::kMaxRank) {
    broken(name, "'", key, "' has ", value["shape"].size(), " axes, at most 4 are supported.");
  }
  std::vector<int64_t> sizes;
  uint64_t total = static_cast<uint64_t>(size_of(entry.dtype));
  for (const Json& size : value["shape"]) {
    constexpr uint64_t kMaxSize = uint64_t{1} << 62;
    if (!size.is_number_unsigned() || size.get<uint64_t>() > kMaxSize ||
        __builtin_mul_overflow(total, size.get<uint64_t>(), &total) || total > kMaxSize) {
      broken(name, "'", key, "' has an impossible shape ", value["shape"].dump(), '.');
    }
    sizes.push_back(size);
  }
  entry.shape = Shape(sizes.data(), static_cast<int>(sizes.size()));
  if (entry.end < entry.begin || entry.end - entry.begin != total) {
    broken(name, "'", key, "' is ", code, ' ', entry.shape, " = ", total,
           " bytes, its offsets are ", entry.begin, " to ", entry.end, '.');
  }
  return entry;
}

}  // namespace

std::string safetensors_bytes(const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [key, tensor] : tensors) {
    check(!header.contains(key), "safetensors", "'", key, "' is written twice.");
    Json shape = Json::array();
    for (int i = 0; i < tensor.shape().rank(); ++i) shape.push_back(tensor.shape()[i]);
    const uint64_t end = offset + static_cast<uint64_t>(tensor.bytes());
    header[key] = {{"dtype", code_of(tensor.dtype())},
                   {"shape", std::move(shape)},
                   {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  const uint64_t length = text.size();
  std::string bytes(8 + length + offset, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  std::memcpy(bytes.data() + 8, text.data(), length);
  char* out = bytes.data() + 8 + length;
  for (const auto& [key, tensor] : tensors) {
    const Tensor host = tensor.to(Device{});
    if (host.bytes() > 0) std::memcpy(out, host.raw(), static_cast<size_t>(host.bytes()));
    out += host.bytes();
  }
  return bytes;
}

NamedTensors parse_safetensors(const std::string& bytes, const std::string& name) {
  if (bytes.size() < 8) broken(name, "the file has ", bytes.size(), " bytes, the header needs 8.");
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    broken(name, "the header claims ", length, " bytes, at most ", kMaxHeaderBytes,
           " are allowed.");
  }
  if (length > bytes.size() - 8) {
    broken(name, "the header claims ", length, " bytes, the file has ", bytes.size() - 8, " left.");
  }
  const Json header = parse_header(bytes.substr(8, length), name);
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      entries.push_back(parse_entry(key, value, name));
    } else if (!is_text_map(value)) {
      broken(name, "__metadata__ must be an object of strings.");
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      broken(name, "'", entry.key, "' starts at ", entry.begin, ", expected ", expected,
             ": tensors must follow each other without gap or overlap.");
    }
    expected = entry.end;
  }
  const uint64_t available = bytes.size() - 8 - length;
  if (available != expected) {
    broken(name, "the tensors take ", expected, " bytes, the file holds ", available, '.');
  }
  NamedTensors tensors;
  for (const Entry& entry : entries) {
    Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    tensor.copy_from_host(bytes.data() + 8 + length + entry.begin);
    tensors.emplace_back(entry.key, std::move(tensor));
  }
  return tensors;
}

}  // namespace tapestry
