#include "apps/checkpoint/safetensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/checkpoint/safetensors_parts.h"
#include "core/dispatch.h"
#include "data/files/little_endian.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// nlohmann's parser keeps the last of two equal keys; this callback refuses them.
Json parse_object(const std::string& text, const std::string& name, const char* what) {
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
  const Json object = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object()) {
    broken_safetensors(name, "the ", what, " is not a JSON object.");
  }
  if (!duplicate.empty()) broken_safetensors(name, "the ", what, " names '", duplicate, "' twice.");
  return object;
}

bool is_text_map(const Json& value) {
  return value.is_object() &&
         std::all_of(value.begin(), value.end(), [](const Json& text) { return text.is_string(); });
}

StoredTensor parse_entry(const std::string& key, const Json& value, const std::string& name) {
  const bool complete = value.is_object() && value.contains("dtype") &&
                        value["dtype"].is_string() && value.contains("shape") &&
                        value["shape"].is_array() && value.contains("data_offsets") &&
                        value["data_offsets"].is_array() && value["data_offsets"].size() == 2 &&
                        value["data_offsets"][0].is_number_unsigned() &&
                        value["data_offsets"][1].is_number_unsigned();
  if (!complete) broken_safetensors(name, "'", key, "' needs dtype, shape and two data_offsets.");
  const std::string code = value["dtype"];
  const std::optional<StoredType> type = stored_type(code);
  if (!type) {
    broken_safetensors(name, "'", key, "' has dtype ", code, ", expected one of ", stored_codes(),
                       '.');
  }
  StoredTensor tensor{key, *type, {}, 0, value["data_offsets"][0], value["data_offsets"][1]};
  if (value["shape"].size() > Shape::kMaxRank) {
    broken_safetensors(name, "'", key, "' has ", value["shape"].size(),
                       " axes, at most 4 are supported.");
  }
  std::vector<int64_t> sizes;
  uint64_t total = bytes_of(*type);
  for (const Json& size : value["shape"]) {
    constexpr uint64_t kMaxSize = uint64_t{1} << 62;
    if (!size.is_number_unsigned() || size.get<uint64_t>() > kMaxSize ||
        __builtin_mul_overflow(total, size.get<uint64_t>(), &total) || total > kMaxSize) {
      broken_safetensors(name, "'", key, "' has an impossible shape ", value["shape"].dump(), '.');
    }
    sizes.push_back(size);
  }
  tensor.shape = Shape(sizes.data(), static_cast<int>(sizes.size()));
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != total) {
    broken_safetensors(name, "'", key, "' is ", code, ' ', tensor.shape, " = ", total,
                       " bytes, its offsets are ", tensor.begin, " to ", tensor.end, '.');
  }
  return tensor;
}

// Makes a tensor of words one of numbers, as the metadata says ("int4 2048").
void take_as_frozen(const std::string& name, const std::string& text, const std::string& file,
                    std::vector<StoredTensor>& tensors) {
  const auto tensor = std::ranges::find(tensors, name, &StoredTensor::name);
  const std::string word = text.substr(0, text.find(' '));
  const auto format =
      std::ranges::find_if(kWeightFormats, [&](WeightFormat one) { return word == name_of(one); });
  int64_t cols = 0;
  const char* const begin = text.data() + std::min(text.size(), word.size() + 1);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), cols);
  const bool known = format != std::ranges::end(kWeightFormats) &&
                     *format != WeightFormat::kFloat32 && error == std::errc() && cols > 0 &&
                     cols < (int64_t{1} << 40) && end == text.data() + text.size();
  if (!known || tensor == tensors.end() || tensor->type != StoredType::kI32 ||
      tensor->shape.rank() != 2 || tensor->shape[1] != FrozenMatrix::words_in_row(*format, cols)) {
    broken_safetensors(file, "__metadata__ says that '", name, "' holds a matrix of '", text, "', ",
                       tensor == tensors.end()
                           ? "and there is none."
                           : concat("but it is ", name_of(tensor->type), ' ', tensor->shape, '.'));
  }
  tensor->frozen = *format;
  tensor->type = StoredType::kF32;
  tensor->shape = Shape{tensor->shape[0], cols};
}

// The tensors of a file in the order of their data, with offsets from its beginning.
std::vector<StoredTensor> parse_header(const ByteSource& file) {
  const std::string& name = file.name;
  if (file.size < 8) {
    broken_safetensors(name, "the file has ", file.size, " bytes, the header needs 8.");
  }
  unsigned char prefix[8];
  file.read(0, prefix, sizeof prefix);
  if (std::string_view(reinterpret_cast<const char*>(prefix), sizeof prefix) == "version ") {
    broken_safetensors(name,
                       "it is the pointer that Git keeps in place of a large file: fetch the "
                       "file itself (git lfs pull).");
  }
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(prefix[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    broken_safetensors(name, "the header claims ", length, " bytes, at most ", kMaxHeaderBytes,
                       " are allowed.");
  }
  if (length > file.size - 8) {
    broken_safetensors(name, "the header claims ", length, " bytes, the file has ", file.size - 8,
                       " left.");
  }
  std::string text(length, '\0');
  file.read(8, text.data(), length);
  if (!text.starts_with('{')) broken_safetensors(name, "the header is not a JSON object.");
  std::vector<StoredTensor> tensors;
  const Json header = parse_object(text, name, "header");
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      tensors.push_back(parse_entry(key, value, name));
    } else if (!value.is_null() && !is_text_map(value)) {
      broken_safetensors(name, "__metadata__ must be an object of strings.");
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t expected = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != expected) {
      broken_safetensors(name, "'", tensor.name, "' starts at ", tensor.begin, ", expected ",
                         expected, ": tensors must follow each other without gap or overlap.");
    }
    expected = tensor.end;
  }
  const uint64_t available = file.size - 8 - length;
  if (available != expected) {
    broken_safetensors(name, "the tensors take ", expected, " bytes, the file holds ", available,
                       '.');
  }
  for (StoredTensor& tensor : tensors) {
    tensor.begin += 8 + length;
    tensor.end += 8 + length;
  }
  if (const auto metadata = header.find("__metadata__"); metadata != header.end()) {
    for (const auto& [key, value] : metadata->items()) {
      if (!key.starts_with(kFrozenPrefix)) continue;
      take_as_frozen(key.substr(kFrozenPrefix.size()), value.get<std::string>(), name, tensors);
    }
  }
  return tensors;
}

}  // namespace

TensorReader::TensorReader(const ByteSource& file) : name_(file.name) { add_file(file); }

TensorReader::TensorReader(const ByteSource& index,
                           const std::function<ByteSource(const std::string& name)>& open)
    : name_(index.name) {
  if (index.size > kMaxHeaderBytes) {
    broken_safetensors(name_, "the index has ", index.size, " bytes, at most ", kMaxHeaderBytes,
                       " are allowed.");
  }
  const Json object = parse_object(bytes_of(index), name_, "index");
  if (!object.contains("weight_map") || !is_text_map(object["weight_map"])) {
    broken_safetensors(name_, "the index needs weight_map, an object of strings.");
  }
  std::map<std::string, size_t> places;  // of the files
  for (const auto& [tensor, value] : object["weight_map"].items()) {
    const std::string file = value;
    if (file.empty() || file[0] == '.' || file.find('/') != std::string::npos) {
      broken_safetensors(name_, "'", tensor, "' is in '", file, "', expected the name of a file.");
    }
    places.emplace(file, 0);
  }
  for (auto& [file, place] : places) {
    place = files_.size();
    add_file(open(file));
  }
  for (const auto& [tensor, value] : object["weight_map"].items()) {
    const std::string file = value;
    const StoredTensor* const found = find(tensor);
    if (found == nullptr || found->file != places.at(file)) {
      broken_safetensors(name_, "'", tensor, "' is not in ", file, '.');
    }
  }
}

void TensorReader::add_file(const ByteSource& file) {
  for (StoredTensor& tensor : parse_header(file)) {
    tensor.file = files_.size();
    if (const StoredTensor* const other = find(tensor.name)) {
      broken_safetensors(name_, "'", tensor.name, "' is in ", files_[other->file].name, " and in ",
                         file.name, '.');
    }
    add(std::move(tensor));
  }
  files_.push_back(file);
}

void TensorReader::add(StoredTensor tensor) {
  index_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

const StoredTensor* TensorReader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& TensorReader::expect(const std::string& name, const Tensor& target,
                                         bool all_rows) const {
  const StoredTensor* const tensor = find(name);
  if (tensor == nullptr) broken_safetensors(name_, "there is no '", name, "'.");
  const Shape &all = tensor->shape, &some = target.shape();
  const bool rows = all.rank() > 0 && some.rank() == all.rank() && some[0] <= all[0] &&
                    some.with(0, all[0]) == all;
  if (!(all_rows ? all == some : rows) || !fits(tensor->type, target.dtype())) {
    broken_safetensors(files_[tensor->file].name, "'", name, "' is ", name_of(tensor->type), ' ',
                       all, ", needed is ", target.dtype(), ' ', some, '.');
  }
  return *tensor;
}

void TensorReader::read(const std::string& name, const Tensor& target) const {
  read_numbers(expect(name, target, /*all_rows=*/true), 0, target);
}

void TensorReader::read_rows(const std::string& name, int64_t first, const Tensor& target) const {
  const StoredTensor& tensor = expect(name, target, /*all_rows=*/false);
  const int64_t rows = tensor.shape[0];
  if (first < 0 || first > rows - target.shape()[0]) {
    broken_safetensors(files_[tensor.file].name, "'", name, "' has ", rows, " rows, needed are ",
                       target.shape()[0], " from ", first, " on.");
  }
  read_numbers(tensor, first, target);
}

void TensorReader::read_numbers(const StoredTensor& tensor, int64_t first,
                                const Tensor& target) const {
  if (tensor.frozen) return read_frozen(tensor, first, target);
  const ByteSource& file = files_[tensor.file];
  const bool same = as_dtype(tensor.type) == target.dtype();
  const uint64_t size = bytes_of(tensor.type);
  const uint64_t before_first =
      first > 0 ? static_cast<uint64_t>(first * (tensor.shape.numel() / tensor.shape[0])) : 0;
  const uint64_t begin = tensor.begin + before_first * size;
  if (same && target.device().is_cpu()) {
    return file.read(begin, target.raw(), static_cast<uint64_t>(target.numel()) * size);
  }
  std::vector<double> buffer;  // aligned for every type
  for_parts(target, size, [&](const Tensor& part, uint64_t before) {
    const uint64_t bytes = static_cast<uint64_t>(part.numel()) * size;
    buffer.resize((bytes + sizeof(double) - 1) / sizeof(double));
    auto* const stored = reinterpret_cast<char*>(buffer.data());
    file.read(begin + before * size, stored, bytes);
    if (same) return part.copy_from_host(stored);
    const Tensor host = part.device().is_cpu() ? part : Tensor::empty(part.shape(), part.dtype());
    if (!convert_elements(tensor.type, stored, host)) {
      broken_safetensors(
          file.name, "'", tensor.name, "' holds a number that ",
          tensor.type == StoredType::kBool ? "is no truth value." : "int32 cannot hold.");
    }
    if (!part.device().is_cpu()) part.copy_from(host);
  });
}

// Numbers of some rows, a few at a time.
void TensorReader::read_frozen(const StoredTensor& tensor, int64_t first,
                               const Tensor& target) const {
  const int64_t cols = tensor.shape[1], words = FrozenMatrix::words_in_row(*tensor.frozen, cols);
  const uint64_t row_bytes = static_cast<uint64_t>(words) * sizeof(int32_t);
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kPartBytes / row_bytes));
  for (int64_t begin = 0, rows = target.shape()[0]; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    const FrozenMatrix matrix(*tensor.frozen, count, cols);
    files_[tensor.file].read(tensor.begin + static_cast<uint64_t>(first + begin) * row_bytes,
                             matrix.words().raw(), static_cast<uint64_t>(count) * row_bytes);
    const Tensor part = target.slice(begin, begin + count);
    const Tensor host = part.device().is_cpu() ? part : Tensor::empty(part.shape(), part.dtype());
    dispatch_floating(host.dtype(), [&](auto type) {
      matrix.read({0, count}, {0, cols}, host.data<decltype(type)>(), cols);
    });
    if (!part.device().is_cpu()) part.copy_from(host);
  }
}

void TensorReader::read_words(const std::string& name, const FrozenMatrix& target) const {
  const StoredTensor* const tensor = find(name);
  if (tensor == nullptr) broken_safetensors(name_, "there is no '", name, "'.");
  const Shape shape{target.rows(), target.cols()};
  if (tensor->frozen != target.format() || tensor->shape != shape) {
    broken_safetensors(files_[tensor->file].name, "'", name, "' is ", tensor->shape, " in ",
                       tensor->frozen ? name_of(*tensor->frozen) : name_of(tensor->type),
                       ", needed is ", shape, " in ", name_of(target.format()), '.');
  }
  files_[tensor->file].read(tensor->begin, target.words().raw(), tensor->end - tensor->begin);
}

bool TensorReader::equal(const std::string& a, const std::string& b) const {
  const StoredTensor *const x = find(a), *const y = find(b);
  if (x == nullptr) broken_safetensors(name_, "there is no '", a, "'.");
  if (y == nullptr) broken_safetensors(name_, "there is no '", b, "'.");
  if (x->shape != y->shape) return false;
  if (x->type != y->type || x->frozen != y->frozen) {
    const Tensor of_a = Tensor::empty(x->shape, DType::kFloat64), of_b = Tensor::empty_like(of_a);
    read(a, of_a);
    read(b, of_b);
    return std::memcmp(of_a.raw(), of_b.raw(), static_cast<size_t>(of_a.bytes())) == 0;
  }
  std::string part_of_a, part_of_b;
  for (uint64_t at = 0, size = x->end - x->begin; at < size;) {
    const uint64_t count = std::min<uint64_t>(kPartBytes, size - at);
    part_of_a.resize(count);
    part_of_b.resize(count);
    files_[x->file].read(x->begin + at, part_of_a.data(), count);
    files_[y->file].read(y->begin + at, part_of_b.data(), count);
    if (part_of_a != part_of_b) return false;
    at += count;
  }
  return true;
}

TensorReader TensorReader::only(const std::function<bool(const std::string& name)>& keep) const {
  TensorReader kept;
  kept.name_ = name_;
  kept.files_ = files_;
  for (const StoredTensor& tensor : tensors_) {
    if (keep(tensor.name)) kept.add(tensor);
  }
  return kept;
}

TensorReader TensorReader::under(const std::string& prefix) const {
  TensorReader kept;
  kept.name_ = name_;
  kept.files_ = files_;
  for (StoredTensor tensor : tensors_) {
    if (!tensor.name.starts_with(prefix)) continue;
    tensor.name.erase(0, prefix.size());
    kept.add(std::move(tensor));
  }
  return kept;
}

TensorReader open_model_folder(const std::string& folder) {
  const std::string one = folder + "/model.safetensors", index = one + ".index.json";
  if (std::filesystem::exists(one) || !std::filesystem::exists(index)) {
    return TensorReader(open_source(one));
  }
  return {open_source(index),
          [&](const std::string& name) { return open_source(folder + "/" + name); }};
}

}  // namespace tapestry
