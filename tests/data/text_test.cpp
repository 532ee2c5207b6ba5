#include "data/text.h"

#include <gmock/gmock.h>

#include "data/utf8.h"
#include "tests/data/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  EXPECT_EQ(reader.line_number(), static_cast<int64_t>(lines.size()));
  return lines;
}

// Each rule holds for plain and for packed files.
class Lines : public testing::TestWithParam<bool> {
 protected:
  std::vector<std::string> read(const std::string& bytes) {
    return lines_of(folder_.write("text", GetParam() ? gzip(bytes) : bytes));
  }
  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Plain, Lines, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Gzip, Lines, testing::Values(true));

TEST_P(Lines, EndAtLineFeedsOnly) {
  EXPECT_THAT(read("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(read("a\r\nb\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(read("a\rb\nc\n"), ElementsAre("a\rb", "c"));
  EXPECT_THAT(read("a\xE2\x80\xA8z\xC2\x85z\vb\fc\n"),
              ElementsAre("a\xE2\x80\xA8z\xC2\x85z\vb\fc"));
}

TEST_P(Lines, KeepTheLastOneWithoutLineFeed) {
  EXPECT_THAT(read("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(read("a\n\n"), ElementsAre("a", ""));
  EXPECT_THAT(read("\n"), ElementsAre(""));
}

TEST_P(Lines, LoseTheByteOrderMarkAtTheStart) {
  EXPECT_THAT(read("\xEF\xBB\xBF"
                   "a\n\xEF\xBB\xBF"
                   "b\n"),
              ElementsAre("a",
                          "\xEF\xBB\xBF"
                          "b"));
}

TEST_P(Lines, KeepNulBytes) {
  using std::string_literals::operator""s;
  EXPECT_THAT(read("a\0b\nc\n"s), ElementsAre("a\0b"s, "c"));
}

TEST_P(Lines, MayBeLongerThanTheBuffer) {
  const std::string megabyte(1 << 20, 'x');
  EXPECT_THAT(read("a\n" + megabyte + "\r\n" + megabyte), ElementsAre("a", megabyte, megabyte));
}

TEST_P(Lines, MeetBufferEdgesAnywhere) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 30000; ++i) {
    expected.push_back(std::string(static_cast<size_t>(i % 11), 'a') + std::to_string(i));
    text += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  EXPECT_EQ(read(text), expected);
}

TEST_P(Lines, OfAnEmptyFileAreAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read(""); }),
              HasSubstr("text is empty, expected lines of text."));
}

TEST_P(Lines, OverTheLimitAreAnError) {
  const std::string bytes = "a\n" + std::string(LineReader::kMaxLineBytes + 1, 'x');
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read(bytes); }),
              HasSubstr("has a line 2 of more than 64 MiB"));
}

TEST(Gzip, IsToldByContentNotByName) {
  TempFolder folder;
  EXPECT_THAT(lines_of(folder.write("plain.gz", "a\n")), ElementsAre("a"));
  EXPECT_THAT(lines_of(folder.write("packed.txt", gzip("b\n"))), ElementsAre("b"));
  EXPECT_THAT(lines_of(folder.write("one_byte", "\x1F")), ElementsAre("\x1F"));
}

TEST(Gzip, MembersAreOneText) {
  TempFolder folder;
  const auto path = folder.write("a.gz", gzip("a\nb") + gzip("") + gzip("c\nd\n"));
  EXPECT_THAT(lines_of(path), ElementsAre("a", "bc", "d"));
}

TEST(Gzip, PaddingAfterTheMembersIsIgnored) {
  TempFolder folder;
  EXPECT_THAT(lines_of(folder.write("a.gz", gzip("a\n") + std::string(100000, '\0'))),
              ElementsAre("a"));
}

TEST(Gzip, TruncatedNamesThePlace) {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string packed = gzip(text);
  for (const size_t size : {size_t{2}, size_t{9}, packed.size() / 2, packed.size() - 1}) {
    const auto path = folder.write("cut.gz", packed.substr(0, size));
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(path); }),
                testing::MatchesRegex("\\[data\\] .*cut.gz is a truncated gzip file: it ends at "
                                      "compressed byte " +
                                      std::to_string(size) + ", after line [0-9]+\\."));
  }
}

TEST(Gzip, DamageAndForeignBytesAreErrors) {
  TempFolder folder;
  std::string packed = gzip(std::string(1000, 'a') + "\nbcd\n");
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 1);  // the checksum
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.write("a.gz", packed)); }),
              HasSubstr("a.gz is a damaged gzip file (incorrect data check), at compressed byte "));
  EXPECT_THAT(
      error_of(ErrorKind::kData, [&] { lines_of(folder.write("b.gz", gzip("a\n") + "text")); }),
      HasSubstr("b.gz has bytes after its gzip data that are no gzip data, at compressed byte 22"));
}

TEST(Files, OfOtherCompressorsAreErrors) {
  TempFolder folder;
  const std::pair<const char*, std::string> formats[] = {
      {"zstd", "\x28\xB5\x2F\xFD text"},
      {"xz", std::string("\xFD\x37\x7A\x58\x5A\0 t", 8)},
      {"bzip2", "BZh91AY&SY text"},
      {"zip", "PK\x03\x04 text"}};
  for (const auto& [name, bytes] : formats) {
    const std::string path = folder.write("other", bytes + "\nmore\n");
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(path); }),
                HasSubstr(concat("other is a ", name, " file, expected text or gzip.")));
  }
  EXPECT_THAT(lines_of(folder.write("text", "BZh is no word\n")), ElementsAre("BZh is no word"));
}

TEST(Files, ThatCannotBeReadAreErrors) {
  TempFolder folder;
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.path("none")); }),
              HasSubstr("none cannot be opened: No such file or directory."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.path("")); }),
              HasSubstr("is a directory, expected a file."));
  // Opens, but has nothing mapped at its first byte.
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of("/proc/self/mem"); }),
              HasSubstr("/proc/self/mem cannot be read at byte 0: Input/output error."));
  const auto locked = folder.write("locked", "a\n");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (geteuid() == 0) return;  // root reads everything
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(locked); }),
              HasSubstr("locked cannot be opened: Permission denied."));
}

TEST(Utf8, FindsTheFirstIllFormedByte) {
  for (const char* text : {"", "plain", "ß", "€", "👍", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_EQ(find_invalid_utf8(text), std::string::npos) << text;
  }
  for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xE2\x82", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("aß") + bad + "z"), 3u);
  }
}

TEST(Utf8, DecodesAndEncodes) {
  const std::string text = "aß€👍";
  EXPECT_EQ(decode_utf8(text), U"aß€👍");
  std::string again;
  for (const char32_t c : decode_utf8(text)) append_utf8(again, c);
  EXPECT_EQ(again, text);
  EXPECT_EQ(decode_utf8("a\xE2\x82z"), U"a\uFFFD\uFFFDz");
}

TEST(Utf8, LowersCaseAsPythonDoes) {
  // Python 3.11: str.lower(); all code points were compared once by hand.
  EXPECT_EQ(lower_case("ÄÖÜ ẞ ÇA ЖЯ"), "äöü ß ça жя");
  EXPECT_EQ(lower_case("ΟΔΟΣ ΣΑΣ. Σ"), "οδος σας. σ");
  EXPECT_EQ(lower_case("İ"), "i\xCC\x87");
  EXPECT_EQ(lower_case("𐐀"), "𐐨");
}

}  // namespace
}  // namespace tapestry
