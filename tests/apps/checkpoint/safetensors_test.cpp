// safetensors: what is written, byte by byte, and every rule of the format that a reader must hold.
// The format: https://github.com/huggingface/safetensors#format
#include "apps/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

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

TEST(Safetensors, ReadsBackEveryTypeRankAndBit) {
  const double odd = std::nextafter(1.0 / 3, 1);
  const NamedTensors tensors = {
      {"scalar", Tensor::from<double>({odd}, {})},
      {"empty", Tensor::empty({0, 3})},
      {"four.axes", Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 2, 2})},
      {"ids \"quoted\" \xc3\xa9", Tensor::from<int32_t>({-1, 2147483647}, {2})}};
  const NamedTensors again = parse_safetensors(safetensors_bytes(tensors), "m.st");
  ASSERT_EQ(again.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(again[i].first, tensors[i].first);
    EXPECT_EQ(again[i].second.shape(), tensors[i].second.shape());
    EXPECT_EQ(again[i].second.dtype(), tensors[i].second.dtype());
    const auto size = static_cast<size_t>(tensors[i].second.bytes());
    if (size == 0) continue;
    EXPECT_EQ(std::memcmp(again[i].second.raw(), tensors[i].second.raw(), size), 0);
  }
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
     "'w' has dtype Q4; F32, F64, I32 and BF16 are supported."},
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

}  // namespace
}  // namespace tapestry
