// GGUF files that are wrong: each is refused by one message, and nothing is read beyond the file.
#include <gmock/gmock.h>

#include "apps/interop/gguf/gguf_file.h"
#include "core/base/error.h"
#include "data/files/files.h"
#include "data/files/little_endian.h"
#include "tests/apps/checkpoint_bytes.h"
#include "tests/paths.h"

namespace tapestry::interop {
namespace {

using testing::HasSubstr;

/// A file, written field by field.
class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    append_little_endian(bytes_, value);
    return *this;
  }
  Bytes& text(const std::string& text) {
    number(uint64_t{text.size()});
    bytes_ += text;
    return *this;
  }
  Bytes& head(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
    bytes_ += "GGUF";
    return number(version).number(tensors).number(pairs);
  }
  Bytes& integer(const std::string& key, uint32_t value) {
    return text(key).number(uint32_t{4}).number(value);
  }
  Bytes& tensor(const std::string& name, std::vector<uint64_t> sizes, uint32_t type,
                uint64_t offset) {
    text(name).number(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) number(size);
    return number(type).number(offset);
  }
  Bytes& data(size_t count, size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_ += '\0';
    bytes_.append(count, '\1');
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string refusal_of(const std::string& bytes) {
  try {
    const GgufFile file(source_of(bytes, "some.gguf"));
    for (const GgufTensor& tensor : file.tensors()) file.read(tensor);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("[gguf] some.gguf: "));
    return error.what();
  }
  return "";
}

constexpr uint64_t kHuge = uint64_t{1} << 60;

TEST(GgufFile, ReadsBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    const Bytes bytes = Bytes()
                            .head(2, 1, version)
                            .integer("some.key", 7)
                            .tensor("a", {3, 2}, 0, 0)
                            .tensor("b", {1}, 0, 32)
                            .data(24 + 8 + 4);
    const GgufFile file(source_of(bytes.text(), "some.gguf"));
    EXPECT_EQ(file.integer("some.key"), 7);
    EXPECT_EQ(file.tensors().at(0).shape, (Shape{2, 3}));
    EXPECT_EQ(file.read(*file.find("b")).numel(), 1);
    EXPECT_EQ(file.find("c"), nullptr);
    EXPECT_FALSE(file.integer("other").has_value());
    EXPECT_THROW(file.text("some.key"), Error);
  }
}

TEST(GgufFile, AnyBeginningOfAFileIsRefused) {
  const std::string whole = read_file(project_file("tests/fixtures/gguf/tiny.gguf"));
  EXPECT_EQ(refusal_of(whole), "");
  const size_t data = whole.size() - 25000;
  for (size_t size = 0; size < whole.size(); size += size < 2000 || size > data ? 13 : 101) {
    EXPECT_NE(refusal_of(whole.substr(0, size)), "") << size;
  }
}

TEST(GgufFile, HeadersThatAreWrongAreRefused) {
  EXPECT_THAT(refusal_of("GGUX"), HasSubstr("it does not begin with GGUF"));
  EXPECT_THAT(refusal_of(Bytes().head(0, 0, 1).text()),
              HasSubstr("version 1, Tapestry reads 2 and 3"));
  EXPECT_THAT(refusal_of(Bytes().head(0, 0, 0x03000000).text()), HasSubstr("big endian"));
  EXPECT_THAT(refusal_of(Bytes().head(0, kHuge).text()),
              HasSubstr("claims to have 1152921504606846976 pairs"));
  EXPECT_THAT(refusal_of(Bytes().head(kHuge, 0).text()),
              HasSubstr("claims to have 1152921504606846976 tensors"));
}

TEST(GgufFile, PairsThatAreWrongAreRefused) {
  const auto pair = [](auto add) {
    Bytes bytes;
    bytes.head(0, 1);
    add(bytes);
    return refusal_of(bytes.data(64).text());
  };
  EXPECT_THAT(pair([](Bytes& b) { b.number(kHuge); }), HasSubstr("key 1 of 1 claims to have"));
  EXPECT_THAT(pair([](Bytes& b) { b.text(""); }), HasSubstr("claims to have 0 bytes"));
  EXPECT_THAT(pair([](Bytes& b) { b.text("\xFF"); }), HasSubstr("is not UTF-8"));
  EXPECT_THAT(pair([](Bytes& b) { b.text("k").number(uint32_t{13}); }),
              HasSubstr("k has the unknown type of value 13"));
  EXPECT_THAT(pair([](Bytes& b) { b.text("k").number(uint32_t{8}).number(kHuge); }),
              HasSubstr("k needs 1152921504606846976 bytes"));
  const auto list = [&](uint32_t element, uint64_t count) {
    return pair([&](Bytes& b) { b.text("k").number(uint32_t{9}).number(element).number(count); });
  };
  EXPECT_THAT(list(9, 1), HasSubstr("k is an array of arrays"));
  EXPECT_THAT(list(4, kHuge), HasSubstr("k claims to have 1152921504606846976 elements"));
  EXPECT_THAT(list(8, kHuge), HasSubstr("k claims to have 1152921504606846976 elements"));
  EXPECT_THAT(list(8, ~uint64_t{0}), HasSubstr("k claims to have"));
  EXPECT_THAT(
      pair([](Bytes& b) {
        b.text("k").number(uint32_t{9}).number(uint32_t{8}).number(uint64_t{1}).number(kHuge);
      }),
      HasSubstr("element 0 of k needs"));
  EXPECT_THAT(refusal_of(Bytes().head(0, 2).integer("k", 1).integer("k", 2).data(64).text()),
              HasSubstr("the key k is there twice"));
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 30}) {
    EXPECT_THAT(pair([&](Bytes& b) { b.integer("general.alignment", alignment); }),
                HasSubstr(concat("general.alignment is ", alignment, ", expected a power of two")));
  }
  EXPECT_THAT(pair([](Bytes& b) { b.text("general.alignment").number(uint32_t{8}).text("64"); }),
              HasSubstr("general.alignment is '64', expected an integer"));
}

TEST(GgufFile, TensorsThatAreWrongAreRefused) {
  const auto one = [](const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                      uint64_t offset, size_t data) {
    return refusal_of(Bytes().head(1, 0).tensor(name, sizes, type, offset).data(data).text());
  };
  EXPECT_EQ(one("t", {32}, 8, 0, 34), "");
  EXPECT_EQ(one("t", {32}, 8, 0, 64), "");
  EXPECT_THAT(one("t", {32}, 8, 0, 65), HasSubstr("the tensors take 34 bytes, the file holds 65"));
  EXPECT_THAT(one("t", {32}, 8, 0, 33),
              HasSubstr("tensor t Q8_0 (32) begins at 0 of the data and ends beyond it"));
  EXPECT_THAT(one("t", {33}, 8, 0, 64),
              HasSubstr("tensor t has rows of 33 numbers, Q8_0 has blocks of 32"));
  EXPECT_THAT(one("t", {32}, 8, 32, 96),
              HasSubstr("tensor t begins at 32 of the data, expected 0"));
  EXPECT_THAT(one("t", {256}, 10, 0, 84),
              HasSubstr("tensor t is of type Q2_K, Tapestry reads F32, F16"));
  EXPECT_THAT(one("t", {1}, 99, 0, 84), HasSubstr("tensor t is of type 99"));
  EXPECT_THAT(one("t", {}, 0, 0, 84), HasSubstr("tensor t has 0 axes"));
  EXPECT_THAT(one("t", {1, 1, 1, 1, 1}, 0, 0, 84), HasSubstr("tensor t has 5 axes"));
  EXPECT_THAT(one("t", {kHuge, kHuge}, 0, 0, 84), HasSubstr("tensor t has an impossible size"));
  EXPECT_THAT(one("t", {~uint64_t{0}}, 0, 0, 84), HasSubstr("tensor t has an impossible size"));
  EXPECT_THAT(one("t", {kHuge}, 0, 0, 84), HasSubstr("ends beyond it"));
  EXPECT_THAT(one("", {1}, 0, 0, 84), HasSubstr("the name of a tensor claims to have 0 bytes"));
  const auto two = [](const std::string& name, uint64_t offset) {
    return refusal_of(
        Bytes().head(2, 0).tensor("a", {8}, 0, 0).tensor(name, {8}, 0, offset).data(80).text());
  };
  EXPECT_THAT(two("a", 32), HasSubstr("tensor a is there twice"));
  EXPECT_THAT(two("b", 0), HasSubstr("tensor b begins at 0 of the data, expected 32"));  // overlaps
  EXPECT_THAT(two("b", 40),
              HasSubstr("tensor b begins at 40 of the data, expected 32"));  // not aligned
  EXPECT_THAT(two("b", 64), HasSubstr("tensor b begins at 64 of the data, expected 32"));  // a gap
}

}  // namespace
}  // namespace tapestry::interop
