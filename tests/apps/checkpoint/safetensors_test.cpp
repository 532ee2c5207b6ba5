// safetensors: what is written, byte by byte, and every rule of the format that a reader must hold.
// The format: https://github.com/huggingface/safetensors#format
#include "apps/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "tests/apps/checkpoint_bytes.h"

namespace tapestry {
namespace {

/// A file by hand: the header's length, the header, then `data` bytes of zero.
std::string file_of(const std::string& header, size_t data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);  // this machine is little-endian, as the format is
  return bytes + header + std::string(data, '\0');
}

std::string error_of(const std::string& bytes) {
  try {
    parse_safetensors(bytes, "m.st");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, WritesTheFormatByteByByte) {
  const std::string bytes = safetensors_bytes(
      {{"b", Tensor::from<float>({1, -2}, {2, 1})}, {"a", Tensor::from<int32_t>({7}, {})}},
      {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"I32","shape":[],"data_offsets":[8,12]}})";
  const size_t padded = (8 + header.size() + 63) / 64 * 64 - 8;
  ASSERT_EQ(bytes.size(), 8 + padded + 12);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) + 256 * static_cast<unsigned char>(bytes[1]),
            static_cast<int>(padded));
  EXPECT_EQ(bytes.substr(2, 6), std::string(6, '\0'));
  EXPECT_EQ(bytes.substr(8, padded), header + std::string(padded - header.size(), ' '));
  EXPECT_EQ(bytes.substr(8 + padded), std::string("\0\0\x80\x3f\0\0\0\xc0\x07\0\0\0", 12));
}

// What the writer of commit 00d4742 made of these tensors, which it held in memory as a whole.
TEST(Safetensors, WritesTheBytesOfFormerVersions) {
  const std::string bytes = safetensors_bytes(
      {{"b", Tensor::from<float>({1, -2, 0.5f}, {3, 1})},
       {"a \"quoted\" \xc3\xa9", Tensor::from<double>({1.0 / 3}, {})},
       {"empty", Tensor::empty({0, 3})},
       {"ids", Tensor::from<int32_t>({-1, 2147483647}, {2})},
       {"half", Tensor::from<float>({1, -2, 3, 0.1f}, {2, 1, 2, 1}).to(DType::kBFloat16)}},
      {{"format", "tapestry"}, {"k", "v"}});
  std::string expected("x\x01\0\0\0\0\0\0", 8);
  expected += R"({"__metadata__":{"format":"tapestry","k":"v"},)"
              R"("b":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]},)"
              R"("a \"quoted\" )"
              "\xc3\xa9"
              R"(":{"dtype":"F64","shape":[],"data_offsets":[12,20]},)"
              R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[20,20]},)"
              R"("ids":{"dtype":"I32","shape":[2],"data_offsets":[20,28]},)"
              R"("half":{"dtype":"BF16","shape":[2,1,2,1],"data_offsets":[28,36]}})";
  expected += std::string(8 + 0x178 - expected.size(), ' ');
  expected += std::string(
      "\x00\x00\x80?\x00\x00\x00\xc0\x00\x00\x00?"
      "UUUUUU\xd5?\xff\xff\xff\xff\xff\xff\xff\x7f\x80?\x00\xc0@@\xcd=",
      36);
  EXPECT_EQ(bytes, expected);
}

TEST(Safetensors, WritesAnotherTypePartByPart) {
  const int64_t n = 3 * kPartBytes / 4 + 5;  // more than two parts
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7;
  const Tensor tensor = Tensor::from(values, {n});
  size_t largest = 0;
  std::string bytes;
  write_safetensors({{"w", tensor.shape(), DType::kBFloat16, [&] { return tensor; }}}, {},
                    [&](const void* part, size_t count) {
                      largest = std::max(largest, count);
                      bytes.append(static_cast<const char*>(part), count);
                    });
  EXPECT_LE(largest, static_cast<size_t>(kPartBytes));
  EXPECT_TRUE(bytes == safetensors_bytes({{"w", tensor.to(DType::kBFloat16)}}));
}

TEST(Safetensors, ReadsBackEveryTypeRankAndBit) {
  const double odd = std::nextafter(1.0 / 3, 1);
  const std::vector<TensorToWrite> tensors = {
      {"scalar", Tensor::from<double>({odd}, {})},
      {"empty", Tensor::empty({0, 3})},
      {"four.axes", Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 2, 2})},
      {"ids \"quoted\" \xc3\xa9", Tensor::from<int32_t>({-1, 2147483647}, {2})}};
  const NamedTensors again = parse_safetensors(safetensors_bytes(tensors), "m.st");
  ASSERT_EQ(again.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor tensor = tensors[i].content();
    EXPECT_EQ(again[i].first, tensors[i].name);
    EXPECT_EQ(again[i].second.shape(), tensor.shape());
    EXPECT_EQ(again[i].second.dtype(), tensor.dtype());
    const auto size = static_cast<size_t>(tensor.bytes());
    if (size == 0) continue;
    EXPECT_EQ(std::memcmp(again[i].second.raw(), tensor.raw(), size), 0);
  }
}

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A file with one tensor "w", a vector.
template <class T>
std::string vector_file(const char* code, const std::vector<T>& values) {
  const std::string data = bytes_of_values(values);
  return file_of(concat(R"({"w":{"dtype":")", code, R"(","shape":[)", values.size(),
                        R"(],"data_offsets":[0,)", data.size(), "]}}"),
                 0) +
         data;
}

/// "w" read into a tensor of that type.
Tensor read_as(const std::string& bytes, DType dtype) {
  const TensorReader reader(source_of(bytes, "m.st"));
  const Tensor target = Tensor::full(reader.tensors().at(0).shape, 99, dtype);
  reader.read("w", target);
  return target;
}

TEST(Safetensors, ReadsHalvesExactly) {
  const std::vector<uint16_t> halves = {0x0000, 0x8000, 0x3c00, 0xc000, 0x3555, 0x7bff,
                                        0x0400, 0x03ff, 0x8001, 0x7c00, 0xfc00, 0x7e00};
  const std::vector<double> expected = {0,
                                        -0.0,
                                        1,
                                        -2,
                                        0.333251953125,
                                        65504,
                                        std::ldexp(1, -14),
                                        std::ldexp(1023, -24),
                                        -std::ldexp(1, -24),
                                        std::numeric_limits<double>::infinity(),
                                        -std::numeric_limits<double>::infinity()};
  const std::string bytes = vector_file("F16", halves);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const std::vector<double> values = read_as(bytes, dtype).to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(values[i], expected[i]) << i;
      EXPECT_EQ(std::signbit(values[i]), std::signbit(expected[i])) << i;
    }
    EXPECT_TRUE(std::isnan(values.back()));
  }
  // 0x3555 needs more bits than bfloat16 has: it is rounded to nearest.
  EXPECT_EQ(read_as(bytes, DType::kBFloat16).to_vector<float>()[4], 0.333984375f);
}

TEST(Safetensors, ReadsEveryFloatingTypeIntoEveryOther) {
  const std::vector<float> values = {1, -2.5f, 0.25f, 65504};
  const std::map<std::string, std::string> files = {
      {"F64", vector_file("F64", std::vector<double>(values.begin(), values.end()))},
      {"F32", vector_file("F32", values)},
      {"F16", vector_file("F16", std::vector<uint16_t>{0x3c00, 0xc100, 0x3400, 0x7bff})},
      {"BF16", vector_file("BF16", std::vector<uint16_t>{0x3f80, 0xc020, 0x3e80, 0x4780})}};
  for (const auto& [code, bytes] : files) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      const std::vector<float> read = read_as(bytes, dtype).to_vector<float>();
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read[i], values[i]) << code << ' ' << dtype;
      const bool rounded = code == "BF16" || dtype == DType::kBFloat16;
      EXPECT_EQ(read[3], rounded ? 65536 : 65504) << code << ' ' << dtype;
    }
    EXPECT_THROW(read_as(bytes, DType::kInt32), Error) << code;
  }
}

TEST(Safetensors, ReadsIntegersAndTruthValuesIntoInt32) {
  using Ints = std::vector<int32_t>;
  const auto ints = [](const std::string& bytes) {
    return read_as(bytes, DType::kInt32).to_vector<int32_t>();
  };
  EXPECT_EQ(ints(vector_file("I64", std::vector<int64_t>{-2147483648, 7, 2147483647})),
            (Ints{-2147483648, 7, 2147483647}));
  EXPECT_EQ(ints(vector_file("I32", Ints{-5, 6})), (Ints{-5, 6}));
  EXPECT_EQ(ints(vector_file("U8", std::vector<uint8_t>{0, 255})), (Ints{0, 255}));
  EXPECT_EQ(ints(vector_file("BOOL", std::vector<uint8_t>{0, 1})), (Ints{0, 1}));
  const auto error = [&](const std::string& bytes, DType dtype) -> std::string {
    try {
      read_as(bytes, dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(vector_file("I64", std::vector<int64_t>{1, 2147483648}), DType::kInt32),
            "[safetensors] m.st: 'w' holds a number that int32 cannot hold.");
  EXPECT_EQ(error(vector_file("BOOL", std::vector<uint8_t>{1, 2}), DType::kInt32),
            "[safetensors] m.st: 'w' holds a number that is no truth value.");
  EXPECT_EQ(error(vector_file("I64", std::vector<int64_t>{1, 2}), DType::kFloat32),
            "[safetensors] m.st: 'w' is int64 (2), needed is float32 (2).");
}

TEST(Safetensors, ReadsALargeTensorPartByPart) {
  const int64_t n = 3 * kPartBytes / 8 + 3;
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 3;
  const std::string bytes = safetensors_bytes({{"w", Tensor::from(values, {n})}});
  ByteSource source = source_of(bytes, "m.st");
  uint64_t largest = 0;
  source.read = [&, inner = source.read](uint64_t offset, void* to, uint64_t count) {
    largest = std::max(largest, count);
    inner(offset, to, count);
  };
  const Tensor target = Tensor::empty({n});
  TensorReader(source).read("w", target);
  EXPECT_LE(largest, static_cast<uint64_t>(kPartBytes));
  const float* const read = target.data<float>();
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(read[i], static_cast<float>(values[i])) << i;
}

TEST(Safetensors, TellsWhatItHoldsAndReadsNoMore) {
  ByteSource source = source_of(safetensors_bytes({{"a/x", Tensor::from<float>({1, 2}, {2})},
                                                   {"b", Tensor::from<float>({3}, {1, 1})},
                                                   {"a/y", Tensor::from<float>({4}, {})}}),
                                "m.st");
  uint64_t bytes = 0;
  source.read = [&, inner = source.read](uint64_t offset, void* to, uint64_t count) {
    bytes += count;
    inner(offset, to, count);
  };
  const TensorReader reader(source);
  const uint64_t header = bytes;
  EXPECT_EQ(reader.find("b")->shape, Shape({1, 1}));
  EXPECT_EQ(reader.find("c"), nullptr);
  const TensorReader a = reader.under("a/"), rest = reader.only([](const std::string&name) {
    return !name.starts_with("a/");
  });
  ASSERT_EQ(a.tensors().size(), 2u);
  ASSERT_EQ(rest.tensors().size(), 1u);
  EXPECT_EQ(bytes, header);
  const Tensor y = Tensor::zeros({});
  a.read("y", y);
  EXPECT_EQ(y.item(), 4);
  EXPECT_EQ(bytes, header + 4);
  EXPECT_THROW(a.read("b", Tensor::zeros({1, 1})), Error);
  EXPECT_THROW(reader.read("b", Tensor::zeros({1})), Error);
}

TEST(Safetensors, ReadsFilesOfOthers) {
  // No padding, tensors listed out of the order of their data, free white space.
  const std::string header =
      "{ \"y\" : {\"data_offsets\":[4,8],\"shape\":[1],\"dtype\":\"F32\"},\n"
      "  \"x\" : {\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]} }";
  std::string bytes = file_of(header, 8);
  bytes[bytes.size() - 8] = 5;
  const NamedTensors tensors = parse_safetensors(bytes, "m.st");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].first, "x");
  EXPECT_EQ(tensors[0].second.item(), 5);
  EXPECT_EQ(parse_safetensors(file_of("{}", 0), "m.st").size(), 0u);
}

TEST(Safetensors, RefusesToWriteANameTwice) {
  EXPECT_THROW(safetensors_bytes({{"a", Tensor::zeros({1})}, {"a", Tensor::zeros({1})}}), Error);
}

struct Violation {
  const char* name;
  std::string bytes;
  const char* message;
};

void PrintTo(const Violation& violation, std::ostream* out) { *out << violation.name; }

class SafetensorsViolation : public testing::TestWithParam<Violation> {};

TEST_P(SafetensorsViolation, NamesFileAndKey) {
  EXPECT_EQ(error_of(GetParam().bytes), "[safetensors] m.st: " + std::string(GetParam().message));
}

std::string entry(const std::string& fields) { return R"({"w":{)" + fields + "}}"; }

const Violation kViolations[] = {
    {"TooShort", "1234567", "the file has 7 bytes, the header needs 8."},
    {"HeaderOver100MB", std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10),
     "the header claims 100000001 bytes, at most 100000000 are allowed."},
    {"HeaderLengthHuge", std::string(8, '\xff'),
     "the header claims 18446744073709551615 bytes, at most 100000000 are allowed."},
    {"HeaderTruncated", file_of(entry(""), 0).substr(0, 12),
     "the header claims 8 bytes, the file has 4 left."},
    {"NoJson", file_of("{\"w\":", 0), "the header is not a JSON object."},
    {"InvalidUtf8", file_of("{\"\xff\":{}}", 0), "the header is not a JSON object."},
    {"SpaceBeforeTheHeader", file_of(" {}", 0), "the header is not a JSON object."},
    {"JsonArray", file_of("[]", 0), "the header is not a JSON object."},
    {"DuplicateKey",
     file_of(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
             R"("w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
             4),
     "the header names 'w' twice."},
    {"NoDtype", file_of(entry(R"("shape":[1],"data_offsets":[0,4])"), 4),
     "'w' needs dtype, shape and two data_offsets."},
    {"ThreeOffsets", file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4),
     "'w' needs dtype, shape and two data_offsets."},
    {"NegativeOffset", file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), 4),
     "'w' needs dtype, shape and two data_offsets."},
    {"UnknownDtype", file_of(entry(R"("dtype":"Q4","shape":[8],"data_offsets":[0,4])"), 4),
     "'w' has dtype Q4, expected one of F32, F64, BF16, I32, F16, I64, U8, BOOL."},
    {"FiveAxes", file_of(entry(R"("dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4])"), 4),
     "'w' has 5 axes, at most 4 are supported."},
    {"NegativeSize", file_of(entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4),
     "'w' has an impossible shape [-1]."},
    {"FractionalSize", file_of(entry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4),
     "'w' has an impossible shape [1.0]."},
    {"ProductOverflows",  // 4 * 2^32 * 2^32 is 4 * 0 in 64 bits
     file_of(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
     "'w' has an impossible shape [4294967296,4294967296]."},
    {"ProductTooLargeForASignedNumber",  // 4 * 2^31 * 2^30 is 2^63
     file_of(entry(R"("dtype":"F32","shape":[2147483648,1073741824],"data_offsets":[0,0])"), 0),
     "'w' has an impossible shape [2147483648,1073741824]."},
    {"SizeOverflowsBehindAZero",
     file_of(entry(R"("dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0])"), 0),
     "'w' has an impossible shape [0,9223372036854775808]."},
    {"ShapeAgainstBytes", file_of(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
     "'w' is F32 (2) = 8 bytes, its offsets are 0 to 4."},
    {"OffsetsBackwards", file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[8,4])"), 8),
     "'w' is F32 (1) = 4 bytes, its offsets are 8 to 4."},
    {"StartsLate", file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8),
     "'w' starts at 4, expected 0: tensors must follow each other without gap or overlap."},
    {"Overlap",
     file_of(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
             R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
             8),
     "'w' starts at 4, expected 8: tensors must follow each other without gap or overlap."},
    {"FileTooLong", file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 5),
     "the tensors take 4 bytes, the file holds 5."},
    {"FileTooShort", file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 3),
     "the tensors take 4 bytes, the file holds 3."},
    {"MetadataWithNumbers", file_of(R"({"__metadata__":{"a":1}})", 0),
     "__metadata__ must be an object of strings."},
};

INSTANTIATE_TEST_SUITE_P(All, SafetensorsViolation, testing::ValuesIn(kViolations),
                         [](const auto& info) { return info.param.name; });

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string bytes = safetensors_bytes(
      {{"first", Tensor::zeros({3, 2})}, {"second", Tensor::zeros({2}, DType::kFloat64)}});
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(error_of(bytes.substr(0, length)), "no error") << length;
  }
}

TEST(Safetensors, GarbledHeadersNeverCrash) {
  const std::string good = safetensors_bytes(
      {{"first", Tensor::zeros({3, 2})}, {"second", Tensor::zeros({2}, DType::kFloat64)}},
      {{"format", "pt"}});
  const size_t header = good.find('}', good.find("second")) + 2;
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int i = 0, changes = 1 + round % 3; i < changes; ++i) {
      bytes[random() % header] =
          round % 2 == 0 ? static_cast<char>(random()) : "0123456789[]{},:\"-eF"[random() % 20];
    }
    try {
      parse_safetensors(bytes, "m.st");
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("[safetensors] m.st: "));
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

/// Files in a folder of their own.
class ShardsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / concat("tapestry-shards-", getpid());
    std::filesystem::create_directories(folder_);
    write(kFirst, safetensors_bytes({{"a", Tensor::from<float>({1, 2}, {2})},
                                     {"b", Tensor::from<int32_t>({3}, {1})}}));
    write(kSecond, safetensors_bytes({{"c", Tensor::from<double>({4}, {})}}));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void write_index(const std::string& map) const {
    write("model.safetensors.index.json",
          R"({"metadata":{"total_size":20},"weight_map":)" + map + "}");
  }
  /// What is wrong with the folder, without its path.
  std::string error() const {
    try {
      open_model_folder(folder_.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      std::string text = error.what();
      for (size_t at; (at = text.find(folder_.string() + "/")) != std::string::npos;) {
        text.erase(at, folder_.string().size() + 1);
      }
      return text;
    }
    return "no error";
  }

  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";
  static constexpr const char* kMap =
      R"({"c":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors",)"
      R"("b":"model-00001-of-00002.safetensors"})";
  std::filesystem::path folder_;
};

TEST_F(ShardsTest, AreReadAsOne) {
  write_index(kMap);
  const TensorReader reader = open_model_folder(folder_.string());
  const NamedTensors tensors = tensors_of(reader);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(reader.find("a")->type, StoredType::kF32);
  const Tensor a = Tensor::empty({2}), b = Tensor::empty({1}, DType::kInt32), c = Tensor::empty({});
  reader.read("a", a);
  reader.read("b", b);
  reader.read("c", c);
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(b.item(), 3);
  EXPECT_EQ(c.item(), 4);
}

TEST_F(ShardsTest, AFolderWithOneFileNeedsNoIndex) {
  write("model.safetensors", safetensors_bytes({{"w", Tensor::from<float>({5}, {})}}));
  EXPECT_EQ(tensors_of(open_model_folder(folder_.string())).at(0).second.item(), 5);
}

TEST_F(ShardsTest, ADamagedIndexIsNamed) {
  EXPECT_THAT(error(),
              testing::HasSubstr("[file] model.safetensors cannot be opened: No such file"));
  const std::string index = "[safetensors] model.safetensors.index.json: ";
  write("model.safetensors.index.json", "{");
  EXPECT_EQ(error(), index + "the index is not a JSON object.");
  write("model.safetensors.index.json", "{}");
  EXPECT_EQ(error(), index + "the index needs weight_map, an object of strings.");
  write_index(R"({"a":1})");
  EXPECT_EQ(error(), index + "the index needs weight_map, an object of strings.");
  write_index(R"({"a":"x","a":"x"})");
  EXPECT_EQ(error(), index + "the index names 'a' twice.");
  for (const std::string file : {"../secret", "/etc/passwd", "", ".hidden"}) {
    write_index(R"({"a":")" + file + R"("})");
    EXPECT_EQ(error(), index + "'a' is in '" + file + "', expected the name of a file.");
  }
  write_index(R"({"a":"model-00002-of-00002.safetensors"})");
  EXPECT_EQ(error(), index + "'a' is not in model-00002-of-00002.safetensors.");
  write_index(R"({"a":"gone.safetensors"})");
  EXPECT_THAT(error(),
              testing::HasSubstr("[file] gone.safetensors cannot be opened: No such file"));
}

TEST_F(ShardsTest, ATensorInTwoFilesOrInADamagedOneIsNamed) {
  write_index(kMap);
  write(kSecond, safetensors_bytes({{"c", Tensor::zeros({})}, {"a", Tensor::zeros({2})}}));
  EXPECT_EQ(error(), concat("[safetensors] model.safetensors.index.json: 'a' is in ", kFirst,
                            " and in ", kSecond, '.'));
  write(kSecond, "1234567");
  EXPECT_EQ(error(),
            concat("[safetensors] ", kSecond, ": the file has 7 bytes, the header needs 8."));
}

TEST_F(ShardsTest, AFileThatShrinksWhileItIsReadIsAnError) {
  write_index(kMap);
  const TensorReader reader = open_model_folder(folder_.string());
  std::filesystem::resize_file(folder_ / kFirst, 100);
  try {
    reader.read("a", Tensor::empty({2}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.what(), testing::HasSubstr(concat(kFirst, " ends while it is read.")));
  }
}

// The library itself reads such a file.
TEST(Safetensors, MetadataMayBeNull) {
  EXPECT_EQ(error_of(file_of(R"({"__metadata__":null})", 0)), "no error");
}

TEST(Safetensors, TensorsAreComparedByTheirNumbers) {
  const TensorReader reader(
      source_of(safetensors_bytes({{"a", Tensor::from<float>({1, 2}, {2})},
                                   {"same", Tensor::from<float>({1, 2}, {2})},
                                   {"wider", Tensor::from<double>({1, 2}, {2})},
                                   {"other", Tensor::from<float>({1, 3}, {2})},
                                   {"longer", Tensor::from<float>({1, 2, 3}, {3})}}),
                "m.st"));
  EXPECT_TRUE(reader.equal("a", "same"));
  EXPECT_TRUE(reader.equal("a", "wider"));
  EXPECT_FALSE(reader.equal("a", "other"));
  EXPECT_FALSE(reader.equal("a", "longer"));
}

}  // namespace
}  // namespace tapestry
